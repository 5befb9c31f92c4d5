"""Which line of the user's program calls, in compiled code: looked up where that line called before.

A frame of the interpreter tells its code object and how far it is; both together stand for a line,
which `errors.user_call_site` finds and keeps the first time, with the lines of the library in between.
"""

from ..language.abi import helper
from .cpython import (
    BOUND,
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

CACHED_CALL_SITE_CODE = CACHED_CALL_SITE_INSTRUCTION = CACHED_CALL_SITE_CALL_SITE = BOUND
RUNTIME_CACHED_CALL_SITES = RUNTIME_NONE = RUNTIME_USER_CALL_SITE = BOUND


@helper
def new_call_site(runtime):
    """File, line and function of the user's call, None if there is none; 0 on failure."""
    frame, call_site = own(this_frame()), item(runtime, RUNTIME_NONE)
    while frame != 0 and call_site == item(runtime, RUNTIME_NONE):
        call_site = cached_call_site(runtime, frame)
        behind = new_frame_behind(frame)
        drop(frame)
        frame = behind
    drop(frame)
    if call_site != 0 and call_site != item(runtime, RUNTIME_NONE):
        return own(call_site)
    return new_result_of_nothing(item(runtime, RUNTIME_USER_CALL_SITE))


@helper
def cached_call_site(runtime, frame):
    """What is kept of where a frame is, 0 if that is nothing."""
    sites, code, at = (
        item(runtime, RUNTIME_CACHED_CALL_SITES),
        new_code_of(frame),
        instruction_of(frame),
    )
    drop(code)  # the frame holds it
    kept = list_item(sites, (code // 16 + at // 2) % length(sites))
    is_kept = (
        item(kept, CACHED_CALL_SITE_CODE) == code
        and word_of(item(kept, CACHED_CALL_SITE_INSTRUCTION)) == at
    )
    return item(kept, CACHED_CALL_SITE_CALL_SITE) if is_kept else 0
