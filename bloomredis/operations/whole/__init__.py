"""Operations on a whole filter: load, save, copy, merge, describe."""
