"""Calls of other sizes, by what templates are there for: `graph/other_sizes.py`."""

from ..language.abi import helper, stack_words
from .cpython import (
    BOUND,
    add,
    class_of,
    contains,
    drop,
    empty_set,
    exchange,
    fill,
    find,
    forget_all,
    get,
    has_failed,
    item,
    items,
    length,
    list_item,
    new_attribute,
    new_list,
    new_pair,
    new_result,
    new_tuple,
    new_word,
    own,
    put,
    put_list_item,
    remember,
    set_length,
    untrack,
    word_of,
)
from .rings import forget_known, new_oldest
from .templates import fitting, new_by_tape, read

FUNCTION_CONTEXT = BOUND
FAMILY_TEMPLATES = MOST_KEPT = MOST_MET_AT_ALL = BOUND
OTHER_SIZES_FAMILIES = OTHER_SIZES_MADE_ONCE = BOUND
FORMS_FALLBACK = FORMS_FORM_AND_NUMBERS = FORMS_WATCHERS = BOUND
FORMS_INT_CLASS = FORMS_IN_FORMS = FORMS_MET = FORMS_NONE = FORMS_SIZE_CLASS = BOUND
FORMS_SPEC_CLASS = FORMS_TAPES = FORMS_TUPLE_CLASS = BOUND
KNOWN_SPECS_CPU = RUNTIME_FORMS = TAPES_FALSE = TAPES_KNOWN_SPECS = TAPES_TRUE = BOUND
TAPE_MOST_NUMBERS = BOUND
SPEC_CHOSEN = SPEC_DEVICE = SPEC_DTYPE = SPEC_FORM_AND_NUMBERS = SPEC_NDIM = BOUND
SPEC_SHAPE = SPEC_STRIDES = BOUND

COUNT_AT, MOST_COUNTED = 20, (1 << 20) - 1  # where of two counts in one word the second is


# ----- what templates make, and how long it is kept -----


@helper
def has_families(sizes):
    """Whether calls of other sizes have come."""
    return length(get(sizes, OTHER_SIZES_FAMILIES)) != 0


@helper
def new_kept(runtime, sizes, entries, key):
    """What a template makes of a call, kept among the entries under its key; 0 if none does, or, and an
    exception is set, on failure."""
    if not has_families(sizes):
        return 0
    said = stack_words(1)
    made = new_by_template(runtime, sizes, key, said)
    if made != 0 and not keep(runtime, sizes, entries, key, made, said):
        drop(made)
        return 0
    return made


@helper
def new_by_template(runtime, sizes, key, said):
    """What a template makes of a call; 0 if none does, or, and an exception is set, on failure. The key is a
    spec or a tuple. A word that tells this call from others is written to `said`."""
    context = item(runtime, RUNTIME_FORMS)
    if length(item(context, FORMS_WATCHERS)) != 0:
        return 0
    is_tuple = class_of(key) == item(context, FORMS_TUPLE_CLASS)
    only = stack_words(1)
    put(only, 0, key)
    found = new_form(context, items(key) if is_tuple else only, length(key) if is_tuple else 1)
    if found == 0:
        return 0
    family = own(find(get(sizes, OTHER_SIZES_FAMILIES), item(found, 0)))
    made = new_of_family(context, family, item(found, 1), said) if family != 0 else 0
    drop(family)
    drop(found)
    return made


@helper
def new_of_family(context, family, given, said):
    """What the template of a family makes that is for these numbers; 0 as above."""
    numbers, tapes = stack_words(TAPE_MOST_NUMBERS), item(context, FORMS_TAPES)
    if not read(tapes, given, numbers):
        return 0
    put(said, 0, mixed(family, numbers, length(given)))
    templates = own(get(family, FAMILY_TEMPLATES))
    k = fitting(tapes, templates, given, numbers)
    made = new_by_tape(tapes, templates, k, numbers) if k >= 0 else 0
    if made != 0 and k > 0 and not put_first(family, templates, k):
        drop(made)
        made = 0
    drop(templates)
    return made


@helper
def put_first(family, templates, k):
    """Have a template be asked first; whether that went well. Others may be going through the list."""
    made = new_list(length(templates))
    if made == 0:
        return False
    put_list_item(made, 0, own(list_item(templates, k)))
    for other in range(length(templates)):
        if other != k:
            place = other + 1 if other < k else other
            put_list_item(made, place, own(list_item(templates, other)))
    exchange(family, FAMILY_TEMPLATES, made)
    return True


@helper
def mixed(family, numbers, count):
    """A word that tells some numbers of a family from others."""
    found = family
    for k in range(count):
        found = (found ^ get(numbers, 8 * k)) * FACTOR
        found ^= found >> 29
    return found


FACTOR = 0x9E3779B97F4A7C1  # odd


@helper
def keep(runtime, sizes, entries, key, made, said):
    """Keep what a template has made, for good if it came before: `OtherSizes.keep`; whether that went well."""
    if length(entries) >= MOST_KEPT:
        forget_all(entries)
    if remember(entries, key, made) != 0:
        return False
    came = is_met_again(item(runtime, RUNTIME_FORMS), get(said, 0))
    if came != 0:
        return came > 0
    oldest = new_oldest(get(sizes, OTHER_SIZES_MADE_ONCE), key)
    if oldest == 0:
        return has_failed() == 0
    went_well = forget_known(entries, oldest)
    drop(oldest)
    return went_well


@helper
def is_met_again(context, word):
    """1 if what a word tells comes for another time, 0 if not, -1 on failure: `is_met_again` of
    `graph/record.py`."""
    met, boxed = item(context, FORMS_MET), new_word(word)
    if boxed == 0:
        return -1
    came = contains(met, boxed)
    if came == 0 and set_length(met) >= MOST_MET_AT_ALL:
        came = empty_set(met)
    if came == 0:
        came = add(met, boxed)
    drop(boxed)
    return came


# ----- forms and numbers -----


def form_of(function, arguments, count, names):
    """A signature without its numbers, and these: `_form_of` of `graph/other_sizes.py`."""
    context = get(function, FUNCTION_CONTEXT)
    parts = get(arguments, 0)
    if class_of(parts) != item(context, FORMS_TUPLE_CLASS):
        return new_result(item(context, FORMS_FALLBACK), arguments, count, names)
    found = new_form(context, items(parts), length(parts))
    return own(item(context, FORMS_NONE)) if found == 0 and has_failed() == 0 else found


@helper
def new_form(context, parts, count):
    """The form of so many parts of a signature, and its numbers; 0 if it has none, or, and an exception is set,
    on failure."""
    found = split(context, parts, count, 0, 0)
    if found < 0:
        return 0
    form, numbers = new_tuple(found >> COUNT_AT), new_tuple(found & MOST_COUNTED)
    if form == 0 or numbers == 0 or split(context, parts, count, form, numbers) < 0:
        drop(form)
        drop(numbers)
        return 0
    untrack(form)
    untrack(numbers)
    return new_pair(form, numbers)


@helper
def split(context, parts, count, form, numbers):
    """How many numbers a signature has, and in the bits above, how many things there are in its form; they are
    written into tuples where these are there. -1 if it has no form, or, and an exception is set, on failure."""
    at = to = 0
    for k in range(count):
        part = get(parts, 8 * k)
        kind = class_of(part)
        if kind == item(context, FORMS_SPEC_CLASS):
            said = form_and_numbers(context, part)
            if said == 0 or item(said, 0) == item(context, FORMS_NONE):
                return -1
            if form != 0:
                fill(form, at, own(item(said, 0)))
            at += 1
            to = copied(numbers, to, item(said, 1))
        elif kind == item(context, FORMS_SIZE_CLASS):
            if form != 0:
                size = new_word(length(part))
                if size == 0:
                    return -1
                fill(form, at, size)
            at += 1
            to = copied(numbers, to, part)
        elif kind == item(context, FORMS_INT_CLASS) and is_told(context, parts, k):
            if numbers != 0:
                fill(numbers, to, own(part))
            to += 1
        elif contains(item(context, FORMS_IN_FORMS), kind) == 1:
            if form != 0:
                fill(form, at, own(part))
            at += 1
        else:
            return -1
    return at << COUNT_AT | to if to <= MOST_COUNTED else -1


@helper
def is_told(context, parts, k):
    """Whether a part stands behind the class of whole numbers: it is one of a call then."""
    return k > 0 and get(parts, 8 * k - 8) == item(context, FORMS_INT_CLASS)


@helper
def form_and_numbers(context, spec):
    """The form of a spec and its numbers; 0 on failure."""
    found = get(spec, SPEC_FORM_AND_NUMBERS)
    if found != item(context, FORMS_NONE):
        return found
    tapes = item(context, FORMS_TAPES)
    is_usual = get(spec, SPEC_DEVICE) == item(item(tapes, TAPES_KNOWN_SPECS), KNOWN_SPECS_CPU)
    is_usual = is_usual and get(spec, SPEC_CHOSEN) == item(tapes, TAPES_FALSE)
    is_usual = is_usual and are_known(context, get(spec, SPEC_SHAPE))
    if is_usual and are_known(context, get(spec, SPEC_STRIDES)) and has_elements(spec):
        said = new_form_and_numbers(tapes, spec)
        if said != 0:
            exchange(spec, SPEC_FORM_AND_NUMBERS, said)
        return said
    drop(new_attribute(spec, item(context, FORMS_FORM_AND_NUMBERS)))  # which keeps it
    found = get(spec, SPEC_FORM_AND_NUMBERS)
    return 0 if found == item(context, FORMS_NONE) else found


@helper
def are_known(context, numbers):
    """Whether there is no unknown number among some."""
    are_plain = True
    for k in range(length(numbers)):
        are_plain &= class_of(item(numbers, k)) == item(context, FORMS_INT_CLASS)
    return are_plain


@helper
def has_elements(spec):
    """Whether there are elements."""
    shape, are_some = get(spec, SPEC_SHAPE), True
    for k in range(length(shape)):
        are_some &= word_of(item(shape, k)) != 0
    return are_some


@helper
def new_form_and_numbers(tapes, spec):
    """What `form_and_numbers` of `graph/node.py` makes of a usual spec."""
    shape, strides = get(spec, SPEC_SHAPE), get(spec, SPEC_STRIDES)
    is_dense = is_in_c_order(shape, strides)
    form = new_tuple(3)
    numbers = new_tuple(length(shape) if is_dense else 2 * length(shape))
    if form == 0 or numbers == 0:
        drop(form)
        drop(numbers)
        return 0
    fill(form, 0, own(get(spec, SPEC_NDIM)))
    fill(form, 1, own(get(spec, SPEC_DTYPE)))
    fill(form, 2, own(item(tapes, TAPES_TRUE if is_dense else TAPES_FALSE)))
    to = copied(numbers, 0, shape)
    if not is_dense:
        copied(numbers, to, strides)
    untrack(form)
    untrack(numbers)
    return new_pair(form, numbers)


@helper
def is_in_c_order(shape, strides):
    """Whether strides are those of a memory that is passed through in order."""
    step = 1
    for k in range(length(shape) - 1, -1, -1):
        if word_of(item(strides, k)) != step:
            return False
        step *= word_of(item(shape, k))
    return True


@helper
def copied(numbers, to, others):
    """Write some numbers behind those in a tuple, if that is there; where they end."""
    for k in range(length(others) if numbers != 0 else 0):
        fill(numbers, to + k, own(item(others, k)))
    return to + length(others)
