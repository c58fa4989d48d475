-- The `text` of a receipt that keeps the `reply` of the lane's call `number`; or, if it is nil or false, that the call has
-- none yet.  Needs format, and the locals number and reply.
local text = number .. (reply and ':' .. reply .. ';' or BEGUN)
