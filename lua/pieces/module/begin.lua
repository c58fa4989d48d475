call('BF.ADD', key, marker)  -- the filter contains the marker, so this changes nothing
if receipt then
  -- paste: write_receipt
end
