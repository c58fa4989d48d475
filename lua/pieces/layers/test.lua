there = false
if not ended then
  -- paste: item_test
end
if not there and older > 0 then
  -- paste: test_older
end
