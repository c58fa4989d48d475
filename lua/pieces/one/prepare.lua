if unwritten then
  -- rare: first_write
  unwritten = false
end
