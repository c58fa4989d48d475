if fit then
  -- paste: check_length
end
