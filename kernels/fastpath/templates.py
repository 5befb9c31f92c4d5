"""What templates make of numbers, compiled: tapes of `graph/tapes.py`, read one instruction after the other."""

from ..language.abi import helper, quotient, stack_words
from .cpython import (
    BASIC_SIZE,
    BOUND,
    CONTENTS,
    LENGTH,
    WEAK_REFERENCES,
    class_of,
    contains,
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
    new_attribute,
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

FUNCTION_CONTEXT = BOUND
TAPE_ADD = TAPE_BIT_LENGTH = TAPE_CALLED = TAPE_DIVIDE = TAPE_EQUAL = TAPE_LESS = BOUND
TAPE_LESS_OR_EQUAL = TAPE_LITERAL = TAPE_MULTIPLY = TAPE_REMAINDER = TAPE_SUBTRACT = BOUND
TAPE_UNEQUAL = BOUND
TAPE_COPY = TAPE_DICT = TAPE_INSTANCE = TAPE_LIST = TAPE_RECIPE = TAPE_SAME = TAPE_SPEC = BOUND
TAPE_TUPLE = BOUND
TAPE_CONSTANT = TAPE_HIDDEN = TAPE_MOST_NUMBERS = TAPE_NUMBER = TAPE_OBJECT = BOUND
TAPES_CPU = TAPES_EMPTY = TAPES_FALLBACK = TAPES_FALSE = TAPES_INT_CLASS = BOUND
TAPES_KEEP_SPEC = TAPES_MAKE_MEMORY = TAPES_MEMORIES = TAPES_NONE = TAPES_SERIALS = BOUND
TAPES_SPECS = TAPES_SPEC_CLASS = TAPES_TRUE = BOUND
TEMPLATE_CONSTANTS = TEMPLATE_TAPE = BOUND
FORMS_FALLBACK = FORMS_FORM_AND_NUMBERS = FORMS_INT_CLASS = FORMS_IN_FORMS = FORMS_NONE = BOUND
FORMS_SIZE_CLASS = FORMS_SPEC_CLASS = FORMS_TUPLE_CLASS = BOUND
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

COUNT_AT, MOST_COUNTED = 20, (1 << 20) - 1  # where of two counts in one word the second is

LARGEST = 1 << 62  # sums of these are still words


def first_made(function, arguments, count, names):
    """What the first template makes whose conditions numbers meet, and which it is: `_first_made` of
    `graph/templates.py`."""
    context = get(function, FUNCTION_CONTEXT)
    templates, given = get(arguments, 0), get(arguments, 8)
    numbers, none = stack_words(TAPE_MOST_NUMBERS), item(context, TAPES_NONE)
    is_usual = read(context, given, numbers)
    for k in range(length(templates) if is_usual else 0):
        template = list_item(templates, k)
        tape, constants = item(template, TEMPLATE_TAPE), item(template, TEMPLATE_CONSTANTS)
        meets = UNUSUAL
        if tape != none and length(given) == get(tape, GIVEN):
            meets = computed(tape, constants, numbers)
        if meets == MET:
            return new_pair(new_made(context, tape, constants, numbers), new_word(k))
        if meets == FAILED:
            return 0
        if meets == UNUSUAL:
            is_usual = False
            break
    if is_usual:
        return own(none)
    return new_result(item(context, TAPES_FALLBACK), arguments, count, names)


def form_of(function, arguments, count, names):
    """A signature without its numbers, and these: `_form_of` of `graph/other_sizes.py`."""
    context = get(function, FUNCTION_CONTEXT)
    parts, none = get(arguments, 0), item(context, FORMS_NONE)
    if class_of(parts) != item(context, FORMS_TUPLE_CLASS):
        return new_result(item(context, FORMS_FALLBACK), arguments, count, names)
    found = split(context, parts, 0, 0)
    if found < 0:
        return 0 if has_failed() != 0 else own(none)
    form, numbers = new_tuple(found >> COUNT_AT), new_tuple(found & MOST_COUNTED)
    if form == 0 or numbers == 0 or split(context, parts, form, numbers) < 0:
        drop(form)
        drop(numbers)
        return 0
    untrack(form)
    untrack(numbers)
    return new_pair(form, numbers)


@helper
def split(context, parts, form, numbers):
    """How many numbers a signature has, and in the bits above, how many things there are in its form; they are
    written into tuples where these are there. -1 if it has no form, or, and an exception is set, on failure."""
    at = to = 0
    for k in range(length(parts)):
        part = item(parts, k)
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
    return k > 0 and item(parts, k - 1) == item(context, FORMS_INT_CLASS)


@helper
def form_and_numbers(context, spec):
    """The form of a spec and its numbers; 0 on failure."""
    found = get(spec, SPEC_FORM_AND_NUMBERS)
    if found == item(context, FORMS_NONE):
        drop(new_attribute(spec, item(context, FORMS_FORM_AND_NUMBERS)))  # which keeps it
        found = get(spec, SPEC_FORM_AND_NUMBERS)
    return 0 if found == item(context, FORMS_NONE) else found


@helper
def copied(numbers, to, others):
    """Write some numbers behind those in a tuple, if that is there; where they end."""
    for k in range(length(others) if numbers != 0 else 0):
        fill(numbers, to + k, own(item(others, k)))
    return to + length(others)


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
    found = own(find(item(context, TAPES_SPECS), key))
    if found == 0 and has_failed() == 0:
        found = new_kept_spec(context, key, parts)
    drop(key)
    return found


@helper
def new_kept_spec(context, key, parts):
    """A spec with these parts, which others will share."""
    made = new_object(item(context, TAPES_SPEC_CLASS))
    ndim = new_word(length(item(parts, KNOWN_SHAPE)))
    if made == 0 or ndim == 0:
        drop(made)
        drop(ndim)
        return 0
    put(made, SPEC_SHAPE, own(item(parts, KNOWN_SHAPE)))
    put(made, SPEC_STRIDES, own(item(parts, KNOWN_STRIDES)))
    put(made, SPEC_REPORTED, own(item(parts, KNOWN_STRIDES)))
    put(made, SPEC_DTYPE, own(item(parts, KNOWN_KIND)))
    put(made, SPEC_DEVICE, own(item(context, TAPES_CPU)))
    put(made, SPEC_CHOSEN, own(item(context, TAPES_FALSE)))
    put(made, SPEC_NDIM, ndim)
    put(made, SPEC_NUMEL, own(item(parts, KNOWN_NUMEL)))
    put(made, SPEC_CONTIGUOUS, own(item(parts, KNOWN_CONTIGUOUS)))
    put(made, SPEC_EXTENT, own(item(parts, KNOWN_EXTENT)))
    put(made, SPEC_FORM_AND_NUMBERS, own(item(context, TAPES_NONE)))
    words = stack_words(2)
    put(words, 0, key)
    put(words, 8, made)
    kept = new_result(item(context, TAPES_KEEP_SPEC), words, 2, 0)
    drop(kept)
    if kept == 0:
        drop(made)
        return 0
    return made


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
