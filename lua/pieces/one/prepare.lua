if unwritten then
  -- paste: make_bits
  unwritten = false
end
