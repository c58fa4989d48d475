-- The key of the claim has the value `held`, or is missing though a claim is to be replaced.  Sets `is_busy` unless
-- the caller may claim the item.
-- include: claims
if type(held) == 'table' then
  -- paste: other_type
end
if replaced then
  is_busy = held ~= generation .. replaced:sub(i * OWNER_BYTES - OWNER_BYTES + 1, i * OWNER_BYTES)
else
  local outlived = #held == #mine and held:sub(1, #generation) ~= generation
  is_busy = not outlived and (#held ~= #mine + #RELEASED or held == mine .. RELEASED)
end
if is_busy then
  left = left .. ' ' .. math.max(0, lasts) .. (held and end_of_own(mine, held) or '')
end
