if ended then
  new, full = false, true
else
  -- paste: item_set
end
