"""Compiled kernels, in folders by idea; nothing in here imports anything from `src`.

`language` is what kernels are written in, `math` their scalar functions, `ops` the kernels of operations (each
file pairs the CPU side with the place of its CUDA side), `on_gpu` the programs of a warp or a block,
`runtime` what runs them, and `fastpath` the interpreter's part of recording as machine code.
"""
