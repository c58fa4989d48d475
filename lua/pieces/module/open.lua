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
