-- include: layer_record
local refusal = error_reply('BLOOMARGUMENT the layers and the keys do not match')
if described then
  refusal = select(2, check_record(KEYS, identity)) or error_reply(damaged and 'BLOOMDAMAGED ' .. damaged or BAD_ITEMS)
end
