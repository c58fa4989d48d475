-- include: decimals
-- include: claims
if not fit then
  -- rare: refuse
  return refusal
end
do
  return check_lease(read_number(ARGV[3], 1)) or check_owners(owners, count)
    or replaced and check_owners(replaced, count)
    or error_reply('BLOOMARGUMENT ' .. own - 1 .. ' keys are not the claims of ' .. count .. ' items')
end
