-- What to reply to a call without executing it: the reply of its earlier execution, that of the earlier call
-- about its one item, or an error reply.  Nil if it has to be executed; an earlier call that was not executed
-- never will be from then on, wherever it is.  `short` says that the earlier call may have ended before the
-- item.  Needs items.lua and receipts.lua.
local function replay(receipt, number, earlier_receipt, earlier_number, place, short)
  local misnumbered = check_number(receipt, number) or check_number(earlier_receipt, earlier_number and place)
  if misnumbered then
    return misnumbered
  end
  local kept, outdated = recall(receipt, number)
  if kept or outdated then
    return kept and answer(kept) or outdated
  end
  local earlier = recall(earlier_receipt, earlier_number)
  if not earlier then
    keep(earlier_receipt, earlier_number, '')
  elseif place < #earlier then
    return answer(earlier:sub(place + 1, place + 1))
  elseif #earlier > 0 and not short then
    return redis.error_reply('BLOOMARGUMENT the earlier call had no item at this place')
  end
end
