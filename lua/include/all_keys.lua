-- All keys of a filter of one or more layers.
-- include: header
-- include: layer_record
-- include: chain

-- All keys of the filter that the caller knows; or nil and an error reply.
local function keys_of(keys, identity)
  local cursor = known_cursor(identity)
  local refusal
  if cursor then
    refusal = check_cursor(keys[#keys - cursor - 1], cursor)
  elseif has_record(identity) then
    refusal = select(2, check_record(keys, identity))
  else
    refusal = select(2, open_filter(keys[1], identity))
  end
  if refusal then
    return nil, refusal
  end
  local all = { keys[1] }
  for i = #keys - extra_keys(identity) + 1, #keys do
    all[#all + 1] = keys[i]
  end
  if cursor then
    for _, key in ipairs(all) do
      redis.call('STRLEN', key)  -- refuses a key of another type
    end
  end
  return all
end
