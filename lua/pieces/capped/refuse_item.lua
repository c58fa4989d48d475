if room < 1 and call('BF.EXISTS', key, items[i]) == 0 then
  return table.concat(answers), error_reply(NO_ROOM)
end
