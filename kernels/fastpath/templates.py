"""What templates make of numbers, compiled: tapes of `graph/tapes.py`, read one instruction after the other."""

from ..language.abi import helper, quotient, stack_words
from .cpython import (
    BASIC_SIZE,
    BOUND,
    CONTENTS,
    LENGTH,
    WEAK_REFERENCES,
    class_of,
    drop,
    exchange,
    fill,
    find,
    forget_error,
    get,
    has_failed,
    is_set,
    item,
    items,
    length,
    list_item,
    new_dict,
    new_instance,
    new_list,
    new_next,
    new_object,
    new_pair,
    new_result,
    new_tuple,
    new_word,
    own,
    put,
    put_list_item,
    remember,
    track,
    untrack,
    word_of,
)
from .rings import forget_known, new_oldest

FUNCTION_CONTEXT = BOUND
TAPE_ADD = TAPE_BIT_LENGTH = TAPE_CALLED = TAPE_DIVIDE = TAPE_EQUAL = TAPE_LESS = BOUND
TAPE_LESS_OR_EQUAL = TAPE_LITERAL = TAPE_MULTIPLY = TAPE_REMAINDER = TAPE_SUBTRACT = BOUND
TAPE_UNEQUAL = BOUND
TAPE_COPY = TAPE_DICT = TAPE_INSTANCE = TAPE_LIST = TAPE_RECIPE = TAPE_SAME = TAPE_SPEC = BOUND
TAPE_TUPLE = BOUND
TAPE_CONSTANT = TAPE_HIDDEN = TAPE_MOST_NUMBERS = TAPE_NUMBER = TAPE_OBJECT = BOUND
TAPES_EMPTY = TAPES_FALLBACK = TAPES_FALSE = TAPES_INT_CLASS = BOUND
TAPES_KNOWN_SPECS = TAPES_MAKE_MEMORY = TAPES_MEMORIES = TAPES_NONE = TAPES_SERIALS = BOUND
TAPES_TRUE = BOUND
KNOWN_SPECS_CPU = KNOWN_SPECS_DENSE = KNOWN_SPECS_MADE_ONCE = KNOWN_SPECS_SPECS = BOUND
KNOWN_SPECS_SPEC_CLASS = BOUND
TEMPLATE_CONSTANTS = TEMPLATE_TAPE = BOUND
DTYPE_ITEMSIZE = MEMORY_SIZES = MEMORY_WANTS = POOL_ALIGNMENT = POOL_SMALL = BOUND
KNOWN_CONTIGUOUS = KNOWN_EXTENT = KNOWN_KIND = KNOWN_NUMEL = KNOWN_SHAPE = KNOWN_STRIDES = BOUND
SPEC_CHOSEN = SPEC_CONTIGUOUS = SPEC_DEVICE = SPEC_DTYPE = SPEC_EXTENT = BOUND
SPEC_FORM_AND_NUMBERS = SPEC_NDIM = SPEC_NUMEL = SPEC_REPORTED = SPEC_SHAPE = SPEC_STRIDES = BOUND
RECIPE_ALIAS = RECIPE_CONSTANTS = RECIPE_COUNT = RECIPE_DEVICE_STEPS = RECIPE_DRAW = BOUND
RECIPE_FUSION = RECIPE_HEAD = RECIPE_INPUTS = RECIPE_IN_PLACE = RECIPE_IS_RESIZED = BOUND
RECIPE_LARGE = RECIPE_LAUNCHES = RECIPE_NBYTES = RECIPE_OUTPUTS = RECIPE_PICKS = BOUND
RECIPE_SCRATCH = RECIPE_SERIAL = RECIPE_SIZES = RECIPE_SPEC = RECIPE_STEPS = RECIPE_WANTS = BOUND
RECIPE_WRITE = BOUND
RESIZED_ALIAS = RESIZED_CONSTANTS = RESIZED_DRAW = RESIZED_FUSION = RESIZED_INPUTS = BOUND
RESIZED_OUTPUTS = RESIZED_PICKS = RESIZED_SCRATCH = RESIZED_STEPS = BOUND
ROW_STEP_GRAIN = ROW_STEP_N = ROW_STEP_SOURCE = KERNEL_SOURCE_ADDRESS = BOUND

# Where a tape says how many numbers it is given and computes, and how many objects it makes; it begins behind.
GIVEN, COMPUTED, MADE, BEGIN = CONTENTS, CONTENTS + 8, CONTENTS + 16, CONTENTS + 24
INSTRUCTION = 24  # bytes of one of numbers: what it does, with which two
HEAD = 24  # bytes of one of objects, before its operands: what it makes, of what, of how many

# How the numbers of a call meet the conditions; FAILED: an exception is set.
UNMET, MET, UNUSUAL, FAILED = 0, 1, 2, 3

LARGEST = 1 << 62  # sums of these are still words


def first_made(function, arguments, count, names):
    """What the first template makes whose conditions numbers meet, and which it is: `_first_made` of
    `graph/templates.py`."""
    context = get(function, FUNCTION_CONTEXT)
    templates, given = get(arguments, 0), get(arguments, 8)
    numbers, none = stack_words(TAPE_MOST_NUMBERS), item(context, TAPES_NONE)
    if read(context, given, numbers):
        k = fitting(context, templates, given, numbers)
        if k >= 0:
            return new_pair(new_by_tape(context, templates, k, numbers), new_word(k))
        if k == NONE_FITS:
            return own(none)
        if k == HAS_FAILED:
            return 0
    return new_result(item(context, TAPES_FALLBACK), arguments, count, names)


NONE_FITS, IS_UNUSUAL, HAS_FAILED = -1, -2, -3


@helper
def fitting(context, templates, given, numbers):
    """Which template the first is whose conditions numbers meet, and which computes others behind them; or that
    none is, that Python has to see to it, or that an exception is set."""
    for k in range(length(templates)):
        template = list_item(templates, k)
        tape, meets = item(template, TEMPLATE_TAPE), UNUSUAL
        if tape != item(context, TAPES_NONE) and length(given) == get(tape, GIVEN):
            meets = computed(tape, item(template, TEMPLATE_CONSTANTS), numbers)
        if meets == MET:
            return k
        if meets == FAILED:
            return HAS_FAILED
        if meets == UNUSUAL:
            return IS_UNUSUAL
    return NONE_FITS


@helper
def new_by_tape(context, templates, k, numbers):
    """What a template makes of numbers that it has computed; 0 on failure."""
    template = list_item(templates, k)
    constants = item(template, TEMPLATE_CONSTANTS)
    return new_made(context, item(template, TEMPLATE_TAPE), constants, numbers)


@helper
def read(context, given, numbers):
    """Write the numbers of a tuple down as words; whether they are usual sizes."""
    if length(given) > TAPE_MOST_NUMBERS:
        return False
    for k in range(length(given)):
        number = item(given, k)
        if class_of(number) != item(context, TAPES_INT_CLASS):
            return False
        word = word_of(number)
        if word == -1 and has_failed() != 0:
            forget_error()
            return False
        if not -LARGEST < word < LARGEST:
            return False
        put(numbers, 8 * k, word)
    return True


@helper
def computed(tape, constants, numbers):
    """Compute numbers behind those that are there: whether these meet the conditions on the way."""
    at = tape + BEGIN
    to = numbers + 8 * get(tape, GIVEN)
    end = at + INSTRUCTION * get(tape, COMPUTED)
    while at < end:
        what, first, second = get(at, 0), get(at, 8), get(at, 16)
        at += INSTRUCTION
        found = 0
        if what == TAPE_LITERAL:
            found = first
        elif what == TAPE_CALLED:
            made = new_called(item(constants, first), get(numbers, 8 * second))
            if made == 0:
                return FAILED
            found = word_of(made)
            drop(made)
            if found == -1 and has_failed() != 0:
                forget_error()
                return UNUSUAL
        else:
            a, b = get(numbers, 8 * first), get(numbers, 8 * second)
            if what < TAPE_ADD:
                if not holds(what, a, b):
                    return UNMET
            elif not is_small(what, a, b):
                return UNUSUAL
            else:
                found = result(what, a, b)
        if not -LARGEST < found < LARGEST and what != TAPE_CALLED:
            return UNUSUAL
        put(to, 0, found)
        to += 8
    return MET


@helper
def new_called(function, number):
    """What a function of Python gives for a number."""
    boxed = new_word(number)
    if boxed == 0:
        return 0
    words = stack_words(1)
    put(words, 0, boxed)
    made = new_result(function, words, 1, 0)
    drop(boxed)
    return made


@helper
def holds(what, a, b):
    """Whether two numbers compare so."""
    if what == TAPE_EQUAL:
        return a == b
    if what == TAPE_UNEQUAL:
        return a != b
    if what == TAPE_LESS:
        return a < b
    return what == TAPE_LESS_OR_EQUAL and a <= b


@helper
def is_small(what, a, b):
    """Whether words are enough for a result."""
    if what == TAPE_MULTIPLY:
        return -float(LARGEST) < float(a) * float(b) < float(LARGEST)
    return b > 0 or (what != TAPE_DIVIDE and what != TAPE_REMAINDER)


@helper
def result(what, a, b):
    """What an operation gives, as Python's."""
    if what == TAPE_ADD:
        return a + b
    if what == TAPE_SUBTRACT:
        return a - b
    if what == TAPE_MULTIPLY:
        return a * b
    if what == TAPE_DIVIDE:
        return floor(a, b)
    if what == TAPE_REMAINDER:
        return a - b * floor(a, b)
    return bit_length(abs(a)) if what == TAPE_BIT_LENGTH else 0


@helper
def bit_length(a):
    """How many bits a number from 0 up takes."""
    bits = 0
    while a > 0:
        bits += 1
        a >>= 1
    return bits


@helper
def floor(a, b):
    """The quotient of a number by a positive one, rounded down."""
    return quotient(a, b) if a >= 0 else -quotient(b - 1 - a, b)


@helper
def new_made(context, tape, constants, numbers):
    """The last of the objects that a tape makes; 0 on failure."""
    objects = new_tuple(get(tape, MADE))
    if objects == 0:
        return 0
    untrack(objects)  # it has gaps, and the collector may run in between
    at = tape + BEGIN + INSTRUCTION * get(tape, COMPUTED)
    last = get(tape, MADE) - 1
    for k in range(last + 1):
        what = get(at, 0)
        made = new_thing(context, at, constants, objects, numbers)
        if made == 0:
            drop(objects)
            return 0
        if what & TAPE_HIDDEN != 0:
            untrack(made)
        elif what >= TAPE_RECIPE:
            track(made)  # as what Python makes
        fill(objects, k, made)
        at += HEAD + 8 * get(at, 16)
    found = own(item(objects, last))
    drop(objects)
    return found


@helper
def new_thing(context, at, constants, objects, numbers):
    """The object that an instruction makes."""
    what, count = get(at, 0) & ~TAPE_HIDDEN, get(at, 16)
    if what == TAPE_LIST:
        return new_listed(at, constants, objects, numbers)
    if what == TAPE_DICT:
        return new_mapping(at, constants, objects, numbers)
    if what == TAPE_SAME:
        return new_operand(get(at, HEAD), constants, objects, numbers)
    if what == TAPE_COPY:
        return new_changed(at, constants, objects, numbers)
    is_plain = what != TAPE_INSTANCE
    made = new_tuple(count) if is_plain else new_instance(item(constants, get(at, 8)), count)
    for k in range(count if made != 0 else 0):
        part = new_operand(get(at, HEAD + 8 * k), constants, objects, numbers)
        if part == 0:
            drop(made)
            return 0
        fill(made, k, part)
    if made == 0 or what == TAPE_TUPLE or not is_plain:
        return made
    if what == TAPE_SPEC:
        found = new_spec(context, made)
    elif what == TAPE_RECIPE:
        found = new_recipe(context, item(constants, get(at, 8)), made)
    else:
        found = new_result(item(constants, get(at, 8)), items(made), count, 0)
    drop(made)
    return found


@helper
def new_operand(code, constants, objects, numbers):
    """An operand of an instruction."""
    kind, which = code & 3, code >> 2
    if kind == TAPE_CONSTANT:
        return own(item(constants, which))
    if kind == TAPE_OBJECT:
        return own(item(objects, which))
    if kind == TAPE_NUMBER:
        return new_word(get(numbers, 8 * which))
    return new_dict()


@helper
def new_listed(at, constants, objects, numbers):
    """A list of the operands of an instruction."""
    made = new_list(get(at, 16))
    for k in range(get(at, 16) if made != 0 else 0):
        part = new_operand(get(at, HEAD + 8 * k), constants, objects, numbers)
        if part == 0:
            drop(made)
            return 0
        put_list_item(made, k, part)
    return made


@helper
def new_mapping(at, constants, objects, numbers):
    """A dict of the operands of an instruction, names and values in turns."""
    made = new_dict()
    for k in range(0, get(at, 16) if made != 0 else 0, 2):
        name = new_operand(get(at, HEAD + 8 * k), constants, objects, numbers)
        value = new_operand(get(at, HEAD + 8 * k + 8), constants, objects, numbers)
        has_gone_well = name != 0 and value != 0 and remember(made, name, value) == 0
        drop(name)
        drop(value)
        if not has_gone_well:
            drop(made)
            return 0
    return made


@helper
def new_copy(thing):
    """An object like another one."""
    kind = class_of(thing)
    made, references = new_object(kind), get(kind, WEAK_REFERENCES)
    for offset in range(LENGTH, get(kind, BASIC_SIZE) if made != 0 else 0, 8):
        if offset != references:
            put(made, offset, own(get(thing, offset)))
    return made


@helper
def new_changed(at, constants, objects, numbers):
    """An object like a constant one, but for some slots."""
    made = new_copy(item(constants, get(at, 8)))
    for k in range(0, get(at, 16) if made != 0 else 0, 2):
        part = new_operand(get(at, HEAD + 8 * k + 8), constants, objects, numbers)
        if part == 0:
            drop(made)
            return 0
        exchange(made, get(at, HEAD + 8 * k), part)
    return made


# ----- specs -----


@helper
def new_spec(context, parts):
    """The shared spec with these parts: `known_spec` of `graph/node.py`."""
    key = new_tuple(3)
    if key == 0:
        return 0
    fill(key, 0, own(item(parts, KNOWN_SHAPE)))
    fill(key, 1, own(item(parts, KNOWN_STRIDES)))
    fill(key, 2, own(item(parts, KNOWN_KIND)))
    found = own(find(item(item(context, TAPES_KNOWN_SPECS), KNOWN_SPECS_SPECS), key))
    if found == 0 and has_failed() == 0:
        found = new_kept_spec(context, key, parts)
    drop(key)
    return found


@helper
def new_kept_spec(context, key, parts):
    """A spec with these parts, which others will share."""
    known = item(context, TAPES_KNOWN_SPECS)
    made = new_object(item(known, KNOWN_SPECS_SPEC_CLASS))
    ndim = new_word(length(item(parts, KNOWN_SHAPE)))
    if made == 0 or ndim == 0:
        drop(made)
        drop(ndim)
        return 0
    put(made, SPEC_SHAPE, own(item(parts, KNOWN_SHAPE)))
    put(made, SPEC_STRIDES, own(item(parts, KNOWN_STRIDES)))
    put(made, SPEC_REPORTED, own(item(parts, KNOWN_STRIDES)))
    put(made, SPEC_DTYPE, own(item(parts, KNOWN_KIND)))
    put(made, SPEC_DEVICE, own(item(known, KNOWN_SPECS_CPU)))
    put(made, SPEC_CHOSEN, own(item(context, TAPES_FALSE)))
    put(made, SPEC_NDIM, ndim)
    put(made, SPEC_NUMEL, own(item(parts, KNOWN_NUMEL)))
    put(made, SPEC_CONTIGUOUS, own(item(parts, KNOWN_CONTIGUOUS)))
    put(made, SPEC_EXTENT, own(item(parts, KNOWN_EXTENT)))
    put(made, SPEC_FORM_AND_NUMBERS, own(item(context, TAPES_NONE)))
    if not keep_spec(known, key, made):
        drop(made)
        return 0
    return made


@helper
def keep_spec(known, key, spec):
    """Keep a spec until some more have come: `keep_spec` of `graph/node.py`; whether that went well."""
    kept = item(known, KNOWN_SPECS_SPECS)
    if remember(kept, key, spec) != 0:
        return False
    oldest = new_oldest(item(known, KNOWN_SPECS_MADE_ONCE), key)
    if oldest == 0:
        return has_failed() == 0
    went_well = forget_known(kept, oldest) and forget_dense(known, oldest)
    drop(oldest)
    return went_well


@helper
def forget_dense(known, key):
    """Forget that the spec of a key is the one in C order, or there would be two."""
    shape = item(key, 0)
    dense = new_tuple(length(shape) + 2)
    if dense == 0:
        return False
    for k in range(length(shape)):
        fill(dense, k, own(item(shape, k)))
    fill(dense, length(shape), own(item(key, 2)))
    fill(dense, length(shape) + 1, own(item(known, KNOWN_SPECS_CPU)))
    went_well = forget_known(item(known, KNOWN_SPECS_DENSE), dense)
    drop(dense)
    return went_well


# ----- recipes -----


@helper
def new_recipe(context, like, parts):
    """A recipe on operands of other sizes: `Recipe.resized`, whose arguments begin with the other one."""
    made = new_copy(like)
    if made == 0:
        return 0
    steps, outputs = item(parts, RESIZED_STEPS - 1), item(parts, RESIZED_OUTPUTS - 1)
    none = item(context, TAPES_NONE)
    exchange(made, RECIPE_INPUTS, own(item(parts, RESIZED_INPUTS - 1)))
    exchange(made, RECIPE_OUTPUTS, own(outputs))
    exchange(made, RECIPE_SPEC, own(item(outputs, 0) if length(outputs) > 0 else none))
    exchange(made, RECIPE_STEPS, own(steps))
    exchange(made, RECIPE_CONSTANTS, own(item(parts, RESIZED_CONSTANTS - 1)))
    exchange(made, RECIPE_SCRATCH, own(item(parts, RESIZED_SCRATCH - 1)))
    exchange(made, RECIPE_FUSION, own(item(parts, RESIZED_FUSION - 1)))
    exchange(made, RECIPE_PICKS, own(item(parts, RESIZED_PICKS - 1)))
    exchange(made, RECIPE_DRAW, own(item(parts, RESIZED_DRAW - 1)))
    exchange(made, RECIPE_DEVICE_STEPS, own(none))
    exchange(made, RECIPE_LAUNCHES, own(none))
    exchange(made, RECIPE_IN_PLACE, own(none))
    exchange(made, RECIPE_IS_RESIZED, own(item(context, TAPES_TRUE)))
    exchange(made, RECIPE_LARGE, own(item(context, TAPES_TRUE if is_large(steps) else TAPES_FALSE)))
    serial = new_next(item(context, TAPES_SERIALS))
    head = new_head(context, made, steps)
    if serial == 0 or head == 0 or not has_memory(context, made, outputs):
        drop(serial)
        drop(head)
        drop(made)
        return 0
    exchange(made, RECIPE_SERIAL, serial)
    exchange(made, RECIPE_HEAD, head)
    alias = item(parts, RESIZED_ALIAS - 1)
    exchange(made, RECIPE_ALIAS, own(made if alias == item(context, TAPES_TRUE) else alias))
    return made


@helper
def is_large(steps):
    """Whether there is work for several threads."""
    for k in range(length(steps)):
        step = list_item(steps, k)
        if word_of(get(step, ROW_STEP_N)) >= 2 * word_of(get(step, ROW_STEP_GRAIN)):
            return True
    return False


@helper
def new_head(context, recipe, steps):
    """The first words of its rows, if all of its kernels are linked; else an empty tuple."""
    for k in range(length(steps)):
        if word_of(address_of(list_item(steps, k))) == 0:
            return own(item(context, TAPES_EMPTY))
    arguments = word_of(get(recipe, RECIPE_COUNT)) - is_set(get(recipe, RECIPE_WRITE))
    head = new_tuple(4 * length(steps))
    for k in range(length(steps) if head != 0 else 0):
        step, count = list_item(steps, k), new_word(arguments)
        if count == 0:
            drop(head)
            return 0
        fill(head, 4 * k, own(address_of(step)))
        fill(head, 4 * k + 1, own(get(step, ROW_STEP_N)))
        fill(head, 4 * k + 2, own(get(step, ROW_STEP_GRAIN)))
        fill(head, 4 * k + 3, count)
    if head != 0:
        untrack(head)
    return head


@helper
def address_of(step):
    """Where the kernel of a step begins, 0 while it is not linked."""
    return get(get(step, ROW_STEP_SOURCE), KERNEL_SOURCE_ADDRESS)


@helper
def has_memory(context, recipe, outputs):
    """Find what memory a recipe with these results takes, as `find_memory` there; whether that went well."""
    scratch, results = word_of(get(recipe, RECIPE_SCRATCH)), length(outputs)
    sizes, wants = new_tuple(results), new_tuple(results + int(scratch > 0))
    total = scratch
    for k in range(length(wants) if sizes != 0 and wants != 0 else 0):
        wanted = bytes_of(item(outputs, k)) if k < results else scratch
        memory = new_memory(context, size_class(wanted))
        if memory == 0:
            drop(sizes)
            drop(wants)
            return False
        if k < results:
            fill(sizes, k, own(item(item(memory, MEMORY_SIZES), 0)))
            total += word_of(item(sizes, k))
        fill(wants, k, own(item(item(memory, MEMORY_WANTS), 0)))
        drop(memory)
    nbytes = new_word(total) if sizes != 0 and wants != 0 else 0
    if nbytes == 0:
        drop(sizes)
        drop(wants)
        return False
    untrack(sizes)
    untrack(wants)
    exchange(recipe, RECIPE_NBYTES, nbytes)
    exchange(recipe, RECIPE_SIZES, sizes)
    exchange(recipe, RECIPE_WANTS, wants)
    return True


@helper
def bytes_of(spec):
    """Bytes from the first to one past the last element."""
    return word_of(get(spec, SPEC_EXTENT)) * word_of(get(get(spec, SPEC_DTYPE), DTYPE_ITEMSIZE))


@helper
def size_class(wanted):
    """The size that a request for so many bytes is rounded up to: `size_class` of `storage.py`."""
    if wanted <= POOL_ALIGNMENT:
        return POOL_ALIGNMENT
    bits = bit_length(wanted - 1)
    if wanted <= POOL_SMALL:
        return 1 << bits
    step = 1 << max(bits - 4, 6)
    return quotient(wanted + step - 1, step) * step


@helper
def new_memory(context, size):
    """What is known of memory of a size class."""
    words, boxed = stack_words(1), new_word(size)
    if boxed == 0:
        return 0
    found = own(find(item(context, TAPES_MEMORIES), boxed))
    if found == 0 and has_failed() == 0:
        put(words, 0, boxed)
        found = new_result(item(context, TAPES_MAKE_MEMORY), words, 1, 0)
    drop(boxed)
    return found
