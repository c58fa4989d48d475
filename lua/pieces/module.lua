-- A filter in a key of the server's module.  It has no layout.

-- piece: names
-- include: module_markers
local BAD_ITEMS = 'BLOOMARGUMENT the packed items are malformed'
local COUNTS = true  -- an item is not added again for a commit that was executed before

-- piece: open
-- Open a filter in a key of the server's module.  `packed` becomes the items themselves, and `known` says for each of
-- them, and then for each marker, whether the filter contains it.
local own, lasting, stride, room, markers = #KEYS, nil, 1, nil, select('#', cmsgpack.unpack(identity))
local items = { cmsgpack.unpack(packed .. identity) }
local known, marker = redis.pcall('BF.MEXISTS', key, unpack(items)), items[#items - markers + 1]
local fit = not known.err and markers > 0
for i = #items, #items - markers + 1, -1 do
  fit = fit and known[i] == 1
  items[i] = nil
end
packed = items

-- piece: refuse
local refusal = check_markers(key, identity) or error_reply(BAD_ITEMS)

-- piece: generation
local generation = marker:sub(MARKER_PREFIX_BYTES + 1, MARKER_PREFIX_BYTES + 8)

-- piece: test
there = known[i] == 1

-- piece: set
-- The module may refuse a new item, whose claim is then restored, since its growth is limited; `begin` let it refuse
-- whatever else it may.
new = false
if known[i] == 1 then
  call('BF.ADD', key, packed[i])
elseif not has_room(call('BF.INFO', key), 1) then
  full = true
else
  local lasts = call('PTTL', claim)
  -- paste: before
  local added = redis.pcall('BF.ADD', key, packed[i])
  new, full = added == 1, type(added) == 'table'
  if full and lasts > 0 then
    call('SET', claim, mine, 'PX', lasts)
  end
end

-- piece: begin
call('BF.ADD', key, marker)  -- the filter contains the marker, so this changes nothing
if receipt then
  -- paste: write_receipt
end

-- piece: find_room
-- The number of new items that the filter takes before it has its capacity, that of its first bitmap.
if not room then
  local about = call('BF.INFO', key)
  room = about[6] > 1 and 0 or about[2] - about[8]
end

-- piece: note
-- The module counts the items itself.
