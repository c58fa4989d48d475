-- `held` is the error for the key of a claim.  A key of another type is no claim.
if not tostring(held.err):find('WRONGTYPE') then
  call('GET', claim)  -- raises the server's error
end
