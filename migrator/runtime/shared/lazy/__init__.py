"""Operations that are recorded, and computed later as one program."""
