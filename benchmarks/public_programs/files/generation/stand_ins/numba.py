def jit(**settings):
    return lambda function: function
