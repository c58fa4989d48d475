-- include: claims
if not fit then
  -- rare: refuse
  return refusal
end
do
  return check_owners(owners, count)
    or error_reply('BLOOMARGUMENT ' .. own - 1 .. ' keys are not the claims of ' .. count .. ' items')
end
