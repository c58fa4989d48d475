-- The integer in an argument's decimal text; nil if the text is no integer, or one below `least`.
local function read_number(argument, least)
  local number = tonumber(argument)
  if number and number >= least and number < 2 ^ 53 and number % 1 == 0 then
    return number
  end
end
