-- The identity of a filter that is being rebuilt (FORMAT.md).
-- include: format

-- The identity of a filter alone, without that of its successor, which follows while the filter is being rebuilt.
local function own_identity(identity)
  if #identity == 2 * IDENTITY_BYTES and identity:sub(1, 6) == 'bloomr' then
    return identity:sub(1, IDENTITY_BYTES)
  end
  return identity
end
