"""Which line of the user's program calls, in compiled code: looked up where that line called before.

A frame of the interpreter tells its code object and how far it is; both together stand for a line,
which `errors.user_site` finds and keeps the first time, with the lines of the library in between.
"""

from ..language.abi import helper
from .cpython import (
    drop,
    instruction_of,
    item,
    length,
    list_item,
    new_code_of,
    new_frame_behind,
    new_result_of_nothing,
    own,
    this_frame,
    word_of,
)
from .tensors import NONE, SITES, USER_SITE

CODE, INSTRUCTION, SITE = range(3)  # of what is kept; a line of the library is no site


@helper
def new_site(shared):
    """File, line and function of the user's call, None if there is none; 0 on failure."""
    frame, site = own(this_frame()), item(shared, NONE)
    while frame != 0 and site == item(shared, NONE):
        site = kept_site(shared, frame)
        behind = new_frame_behind(frame)
        drop(frame)
        frame = behind
    drop(frame)
    if site != 0 and site != item(shared, NONE):
        return own(site)
    return new_result_of_nothing(item(shared, USER_SITE))


@helper
def kept_site(shared, frame):
    """What is kept of where a frame is, 0 if that is nothing."""
    sites, code, at = item(shared, SITES), new_code_of(frame), instruction_of(frame)
    drop(code)  # the frame holds it
    kept = list_item(sites, (code // 16 + at // 2) % length(sites))
    is_kept = item(kept, CODE) == code and word_of(item(kept, INSTRUCTION)) == at
    return item(kept, SITE) if is_kept else 0
