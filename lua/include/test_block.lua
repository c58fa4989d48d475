-- Not a function but a piece of a loop: make `there` false and end it unless all bits are set that the mask at `at`
-- in `packed` says.  Needs what read_block.lua needs.
-- include: read_block
if p ~= 0 and bor(a, p) ~= a or q ~= 0 and bor(b, q) ~= b or r ~= 0 and bor(c, r) ~= c
  or s ~= 0 and bor(d, s) ~= d or t ~= 0 and bor(e, t) ~= e or u ~= 0 and bor(f, u) ~= f
  or v ~= 0 and bor(g, v) ~= g or w ~= 0 and bor(h, w) ~= h then
  there = false
  break
end
