-- Let the record of a rotating filter outlive a claim, since the claim's value names the record's generation.
if record then
  local ttl = call('PTTL', record)
  if ttl >= 0 and ttl < lease then
    call('PEXPIRE', record, lease)
  end
end
