-- include: decimals
-- include: claims
for i = 1, math.max(1, count) do
  local malformed = check_value(ARGV[1 + i])
  if malformed then
    return malformed
  end
end
do
  return check_lease(read_number(ARGV[1], 1))
end
