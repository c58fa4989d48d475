if expires then
  call('PEXPIRE', key, ttl)
end
