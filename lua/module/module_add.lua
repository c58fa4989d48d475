-- Add a batch of items to a filter in a key of the server's module, and reply which items were new.
--
-- KEYS[1]  the filter
-- KEYS[2]  the receipt of this call's session; absent if the call need not be safe to retry
-- KEYS[3]  for a retry about one item: the receipt of the session of the earlier call, whose reply was lost; else
--          absent
-- ARGV[1]  the markers of the filter that the caller knows, as MessagePack strings
-- ARGV[2]  the items, as MessagePack strings, one after another
-- ARGV[3]  with KEYS[2]: the name of this call: its number in the session, a dot and a checksum (FORMAT.md)
-- ARGV[4]  with KEYS[3]: the name of the earlier call
-- ARGV[5]  with KEYS[3]: the index of the item in the earlier call, from 0
--
-- Reply: for one item 1 (new) or 0 (present); for more items a string with one such byte each, which ends before
-- the first item that the module refused, or that a capped filter has no room for
--
-- Commands: BF.MEXISTS 1, SET 2, BF.ADD 1

-- include: format

local key, receipt, earlier_receipt, markers, packed, number = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]
local rest, item = cmsgpack.unpack_one(packed)
local is_one = rest < 0
local ours, known, has_begun  -- `has_begun`: the receipt says that the item is new, but the module has refused it

-- The usual case of one item: its session's receipt belongs to an older call.
if is_one and number and receipt and not earlier_receipt then
  local there = redis.pcall('BF.MEXISTS', key, item, cmsgpack.unpack(markers))
  ours, known = not there.err and #there > 1, there[1] == 1
  for i = 2, #there do
    if there[i] ~= 1 then
      ours = false
    end
  end
  if ours then
    -- paste: refuse_one
    local kept
    if known then
      kept = redis.pcall('GET', receipt)
    else
      local reply = '1'
      -- paste: receipt_text
      kept = redis.pcall('SET', receipt, text, 'PX', RECEIPT_MS, 'GET')
    end
    -- paste: read_receipt
    if not answered then
      if known then
        return 0
      end
      local new = redis.pcall('BF.ADD', key, item)
      if new == 1 then
        return new
      end
      has_begun = true
    elseif not known and not kept then
      redis.call('UNLINK', receipt)  -- the call has no number
    elseif not known and type(kept) == 'string' then
      redis.call('SET', receipt, kept, 'PX', RECEIPT_MS)
    end
  end
end

-- include: module_markers
-- include: decimals
-- include: answer
-- include: receipts
-- include: room

local replayed = not earlier_receipt and not has_begun and replay(receipt, number)
if replayed then
  return replayed
end
local refusal = check_markers(key, markers)
if refusal then
  return refusal
end
local earlier = earlier_receipt
  and (replay(receipt, number) or replay_item(earlier_receipt, ARGV[4], read_number(ARGV[5], 0), true))
if earlier then
  return earlier
end
keep(receipt, number)

local call, room = redis.call, nil
-- paste: limit

-- Add items one by one, since an error in a single command for all would lose the other answers.
local function add_each()
  local items, answers = { cmsgpack.unpack(packed) }, {}
  for i = 1, #items do
    -- paste: refuse_item
    local new = redis.pcall('BF.ADD', key, items[i])
    if type(new) == 'table' then
      return table.concat(answers), new
    end
    answers[i], room = string.char(new), room and room - new
  end
  return table.concat(answers)
end

-- Add all items by one command; its reply ends with the error of a refused item.
local function add_all()
  local answers = redis.pcall('BF.MADD', key, cmsgpack.unpack(packed))
  if answers.err then
    return '', answers
  end
  local last = answers[#answers]
  if type(last) == 'table' then
    answers[#answers] = nil
    return string.char(unpack(answers)), last
  end
  return string.char(unpack(answers))
end

-- Valkey turns a reply that contains an error into an error.
local about = not room and rawget(_G, 'server') and call('BF.INFO', key)
room = room or about and about[2] - about[8]
local fits = not room or #packed / 2 <= room or select('#', cmsgpack.unpack(packed)) <= room
local reply, failed = (fits and add_all or add_each)()
if failed and #reply == 0 then
  return refused(failed)
end
if reply:find('\1', 1, true) then
  keep(receipt, number, reply)
end
return answer(reply)
