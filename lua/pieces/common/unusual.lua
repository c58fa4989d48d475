-- A call that is refused, that was executed before, or that asks about an earlier call.  `again` becomes the reply of
-- an earlier call that added the item.  Its bits are set already, unless the layer that had them has ended since.
-- include: decimals
-- include: receipts
local replayed = not earlier_receipt and replay(receipt, number)
if replayed then
  return replayed
elseif not fit then
  -- rare: refuse
  return refusal
end
again = replay(receipt, number) or replay_item(earlier_receipt, ARGV[4], read_number(ARGV[5], 0), not COUNTS)
if again and (COUNTS or type(again) ~= 'number') then
  return again
elseif again then
  receipt = nil
end
