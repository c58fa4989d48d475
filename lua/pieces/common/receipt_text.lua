-- The `text` of a receipt with the `reply` of the session's call `number`.  If `reply` is nil or false, the text says
-- that the call has no reply yet.  Needs format, and the locals number and reply.
local text = number .. (reply and ':' .. reply .. ';' or BEGUN)
