-- The identity of a filter that is being rebuilt (FORMAT.md).
-- include: format

-- The identity of a filter alone; during a rebuild its successor's identity follows it.
local function own_identity(identity)
  if #identity == 2 * IDENTITY_BYTES and identity:sub(1, 6) == 'bloomr' then
    return identity:sub(1, IDENTITY_BYTES)
  end
  return identity
end
