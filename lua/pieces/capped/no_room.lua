-- include: room
do
  return error_reply(NO_ROOM)
end
