-- Sets `there` if a layer before the newest has the item.
for j = 1, older do
  local key, item, item_bytes = older_keys[j], item + older_firsts[j], older_sizes[j]
  -- paste: layer_size
  -- paste: item_test
  if there then
    break
  end
end
