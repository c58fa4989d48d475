-- include: decimals
-- include: claims
do
  return check_value(mine) or check_lease(read_number(ARGV[2], 1))
end
