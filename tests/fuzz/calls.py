"""How to call each public function: call texts with holes, which `arguments.py` fills.

| hole | what fills it |
|---|---|
| `x`, `f`, `i`, `b` | a tensor: any, floating, of whole numbers, of truth values |
| `f1` to `f5`, `x1` … | one of that rank; `fsquare` a square matrix |
| `y`, `s`, `row`, … | one that broadcasts to the first, is like it, fits it: `FITTING` in `arguments.py` |
| `mask`, `places`, `classes`, … | one made for the call: `MADE` there |
| `dim`, `number`, `count`, `flag`, … | a plain value: `PLAIN` there |
| `=f` | the same again |

A method stands for the function of that name, and for the form that writes in place, where they exist. The
elementwise ops of the registry say all this themselves.
"""

from __future__ import annotations

import re

import adjit
from adjit.graph.elementwise import Elementwise
from adjit.graph.export import methods, namespace

# ----- elementwise functions that choose their op, and their arguments -----

CHOOSING = """
{x}.add({y}); {x}.add({y}, alpha={factor}); {x}.add({number}); {x}.sub({y}); {x}.sub({y}, alpha={factor})
{x}.sub({number}); {x}.subtract({y}); {x}.mul({y}); {x}.mul({number}); {x}.multiply({y}); {x}.div({y})
{x}.div({number}); {x}.div({y}, rounding_mode={rounding}); {x}.divide({y}); {x}.true_divide({y})
{x}.floor_divide({y}); {x}.floor_divide({positive}); {x}.remainder({y}); {x}.remainder({positive})
{x}.fmod({y}); {x}.fmod({positive}); {x}.pow({y}); {x}.pow({exponent}); {x}.float_power({exponent})
{x}.float_power({y}); T.pow({positive}, {f}); T.rsub({x}, {y}); T.rsub({x}, {number}, alpha={factor})
{x}.clamp({low}, {high}); {x}.clamp(min={low}); {x}.clamp(max={y}); {x}.clamp({y}, {y})
{x}.clip({low}, {high}); {x}.clamp_min({low}); {x}.clamp_max({high}); {x}.clamp_min({y}); {x}.clamp_max({y})
{f}.round(); {f}.round(decimals={digits}); {f}.nan_to_num(); {f}.nan_to_num({number}, {number}, {number})
T.fill({x}, {number}); {x}.eq({y}); {x}.ne({y}); {x}.lt({y}); {x}.le({y}); {x}.gt({y}); {x}.ge({y})
{x}.eq({number}); {x}.lt({number}); {x}.greater({y}); {x}.greater_equal({y}); {x}.less({y})
{x}.less_equal({y}); {x}.not_equal({y}); {x}.ge({number}); {x}.isclose({y})
T.isclose({f}, {s}, rtol=0.1, equal_nan={flag}); {f}.lerp({s}, {number}); {f}.lerp({s}, {s})
{f}.addcmul({s}, {s}); {f}.addcmul({s}, {s}, value={number}); {f}.addcdiv({s}, {s}, value={number})
{x}.where({mask}, {y}); T.where({mask}, {x}, {y}); T.where({mask}, {f}, {number})
T.where({mask}, {number}, {f}); {x}.masked_fill({mask}, {number})
{f}.masked_fill({mask}, T.tensor({number})); {x}.logical_and({y}); {x}.logical_or({y}); {x}.logical_xor({y})
{x}.logical_not(); {x}.ldexp({y}); {f}.logit(); {f}.logit({small}); {f}.xlogy({y}); T.xlogy({number}, {f})
T.polygamma({order}, {f}); ({f}).polygamma(1); {f}.polygamma_(1); {f}.copysign({y}); {f}.copysign({number})
{f}.heaviside({s}); {f}.prelu({slope}); {f}.hardshrink(); {x}.bitwise_and({y}); {i}.bitwise_or({s})
{i}.bitwise_xor({whole}); {i}.bitwise_left_shift({count}); {i}.bitwise_not()
{i}.bitwise_right_shift({count}); {i}.bitwise_left_shift({shifts}); {i}.bitwise_right_shift({shifts})
{i}.bitwise_and({whole}); {x}.square(); {x}.sgn(); {x}.sign(); {x}.fix(); {f}.frac(); {x}.absolute()
{x}.negative(); {x}.positive(); {f}.sinc(); {x}.arccos(); {x}.arccosh(); {x}.arcsin(); {x}.arcsinh()
{x}.arctan(); {x}.arctanh(); {x}.arctan2({y}); {x}.isreal(); {x}.angle(); {x}.conj(); T.real({x})
{x}.conj_physical(); {x}.conj_physical_(); {x}.resolve_conj(); {x}.resolve_neg(); T.conj_physical({x})
T.conj_physical_({x}); T.resolve_conj({x}); T.resolve_neg({x}); T.linalg.vecdot({f}, {s})
T.threshold({f}, {number}, {number})
T.celu({f}); T.selu({f}); T.rrelu({f}); T.celu_({f}); T.selu_({f}); T.threshold_({f}, {number}, {number})
T.rrelu_({f}); T.special.zeta({positives}, {positives}); T.special.expit({f}); T.special.gammaln({f})
T.special.psi({f}); T.special.logit({f}); T.special.digamma({f}); T.special.erf({f}); T.special.erfc({f})
T.special.erfinv({f}); T.special.exp2({f}); T.special.expm1({f}); T.special.log1p({f})
T.special.erfcx({f}); T.special.ndtr({f}); T.special.log_ndtr({f}); T.special.ndtri({f}.sigmoid())
T.igamma({positives}, {positives}); T.special.gammainc({positives}, {positives}); {f}.igamma_({f})
T.igammac({positives}, {positives}); T.special.gammaincc({positives}, {positives}); {f}.igammac_({f})
({f}).igamma({f}); ({f}).igammac({f}); T.special.entr({f})
T.special.xlog1py({f}, {y}); T.special.xlog1py({number}, {f}); {f}.i0(); T.i0_({f})
T.special.i0({f}); T.special.i0e({f}); T.special.i1({f}); T.special.i1e({f}); T.mvlgamma({positives}, {order})
({f}).mvlgamma(1); {f}.mvlgamma_(2); T.special.multigammaln({positives}, 2)
T.special.polygamma({order}, {f}); T.special.sinc({f}); T.special.xlogy({f}, {y}); F.celu({f})
F.celu({f}, {positive}); F.celu_({f}); F.elu({f}); F.elu({f}, {positive}); F.elu_({f}); F.gelu({f})
F.gelu({f}, approximate='tanh'); F.glu({even}, -1); F.hardshrink({f}); F.hardshrink({f}, {positive})
F.hardsigmoid({f}); F.hardswish({f}); F.hardtanh({f}); F.hardtanh({f}, {low}, {high}); F.hardtanh_({f})
F.leaky_relu({f}); F.leaky_relu({f}, {number}); F.leaky_relu_({f}); F.logsigmoid({f}); F.mish({f})
F.prelu({f}, {slope}); F.relu({f}); F.relu6({f}); F.relu_({f}); F.rrelu({f}); F.rrelu_({f}); F.selu({f})
F.selu_({f}); F.sigmoid({f}); F.silu({f}); F.softplus({f}); F.softplus({f}, {positive}, {positive})
F.softshrink({f}); F.softshrink({f}, {positive}); F.softsign({f}); F.tanh({f}); F.tanhshrink({f})
F.threshold({f}, {number}, {number}); F.threshold_({f}, {number}, {number})
"""

RECURRENT = """
T.rnn_tanh_cell({fsquare}, {=fsquare}, {=fsquare}, {=fsquare})
T.rnn_relu_cell({fsquare}, {=fsquare}, {=fsquare}, {=fsquare})
T.gru_cell({fsquare}, {=fsquare}, {=fsquare}.repeat(3, 1), {=fsquare}.repeat(3, 1))
T.lstm_cell({fsquare}, ({=fsquare}, {=fsquare}), {=fsquare}.repeat(4, 1), {=fsquare}.repeat(4, 1))[1]
T.rnn_tanh({fsquare}.expand(3, -1, -1), {=fsquare}[None], [{=fsquare}] * 2, False, 1, 0., False, False, False)[0]
T.rnn_relu({fsquare}[None], {=fsquare}[None], [{=fsquare}] * 2, False, 1, 0., False, False, False)[1]
T.gru({fsquare}[None], {=fsquare}[None], [{=fsquare}.repeat(3, 1)] * 2, False, 1, 0., False, False, False)[0]
T.lstm({fsquare}[None], [{=fsquare}[None]] * 2, [{=fsquare}.repeat(4, 1)] * 2, False, 1, 0., False, False, False)[0]
"""  # noqa: E501

OPERATORS = """
{x} + {y}; {x} - {y}; {x} * {y}; {x} / {y}; {x} // {y}; {x} % {y}; {x} ** {exponent}; {f} ** {s}
{number} + {x}; {number} - {x}; {number} * {x}; {number} / {x}; {number} // {f}; {number} % {f}
{positive} ** {f}; -{x}; +{x}; abs({x}); ~{b}; ~{i}; {i} & {s}; {i} | {s}; {i} ^ {s}; {whole} & {i}
{whole} | {i}; {whole} ^ {i}; {i} << {count}; {i} >> {count}; {count} << {shifts}; {whole} >> {shifts}
{b} & {s}; {b} | {s}; {b} ^ {s}; {x} == {y}; {x} != {y}; {x} < {y}; {x} <= {y}; {x} > {number}
{x} >= {number}; {x} @ {right}; {f2} @ {right}; {f3} @ {right}
"""

WRITES = """
{x} += {y}; {x} -= {y}; {x} *= {y}; {f} /= {y}; {f} //= {positive}; {f} %= {positive}; {f} **= {exponent}
{i} &= {s}; {i} |= {s}; {i} ^= {s}; {i} <<= {count}; {i} >>= {count}; {x} += {number}; {x} *= {number}
{x}[{part}] = {number}; {x}[{part}] = {fills}; {x}[{mask}] = {number}; {x}[{first_places}] = {number}
{x}[{part}] += {number}; {x}[{part}] *= {number}; {x}[{part}].mul_({number}); {x}[{part}].zero_()
{x}.copy_({y}); {x}.fill_({number}); {x}.fill_(T.tensor({number})); {x}.zero_(); {x}.data.mul_({number})
{x}.detach().add_({number}); {x}.t_(); {x}.transpose_({dim}, {dim}); {x}.squeeze_(); {x}.unsqueeze_({dim})
{x}.swapaxes_({dim}, {dim}); {x}.swapdims_({dim}, {dim}); {x}.squeeze_({dim}); {f}.requires_grad_({flag})
{f}.requires_grad_(); {f}.detach_(); {f}.retain_grad(); {f}.register_hook(lambda g: g * 2)
{f}.register_hook(lambda g: g.clamp(-1, 1)); {x}.detach().numpy()[...] = {whole}; {f}.grad = None
{f}.uniform_(); {f}.normal_(); {f}.exponential_(); {f}.cauchy_(); {f}.log_normal_(); {f}.geometric_(0.5)
{x}.random_(0, 5); {f}.bernoulli_(0.5); T.dropout_({f}, 0.5, {flag}); T.alpha_dropout_({f}, 0.5, {flag})
T.feature_dropout_({f4}, 0.5, {flag}); T.feature_alpha_dropout_({f4}, 0.5, {flag}); {x}.random_()
{x}.resize_({shape}); {x}.resize_as_({s}); T.resize_as_({x}, {s}); {x2}.fill_diagonal_({number})
"""

DIFFERENTIATING = """
{f}.sum().backward(retain_graph=True); ({f} * {s}).sum().backward(retain_graph=True)
{f}.backward(T.ones_like({=f}), retain_graph=True); {f}.square().mean().backward(retain_graph=True)
{f}.sum().backward(); {f}.mean(-1).sum().backward(retain_graph=True)
T.autograd.backward([{f}.sum(), {f}.sum()], retain_graph=True)
"""

DERIVED = """
T.autograd.grad({f}.sum(), {f}, allow_unused=True, retain_graph=True)
T.autograd.grad({f}.square().sum(), {f}, allow_unused=True, create_graph=True)
T.autograd.grad({f}, {f}, T.ones_like({=f}), allow_unused=True, create_graph=True)
T.autograd.grad({f}.mean(), [{f}, {f}], allow_unused=True, retain_graph=True)
"""

# ----- views -----

VIEWS = """
{x}[{part}]; {x}[{part}]; {x}[None]; {x}.t(); {x}.T; {x2}.T; {x2}.mT; {x3}.mT; {x}.transpose({dim}, {dim})
{x}.permute({order_of_dims}); {x}.view(-1); {x}.view({shape}); {x}.reshape(-1); {x}.reshape({shape})
{x}.flatten(); {x}.flatten({dim}); {x}.unflatten(0, ({size0},)); {x}.unsqueeze({dim}); {x}.unsqueeze(-1)
{x}.squeeze(); {x}.squeeze({dim}); {x}.expand({wider}); {x}.expand_as({s}); {x}.broadcast_to({wider})
{x}.diagonal(); {x3}.diagonal({offset}, 0, {last}); {x}.narrow({dim}, 0, 1); {x}.select({dim}, -1)
{x}.unbind({dim}); {x}.chunk(2, {dim}); {x}.split(2, {dim}); {x}.split_with_sizes([{size0}], 0)
{x}.tensor_split(2, {dim}); {x}.swapaxes({dim}, {dim}); {x}.swapdims({dim}, {dim})
{x}.movedim({dim}, {dim}); {x}.moveaxis({dim}, {dim}); {x}.detach(); {x}.data; {x}.contiguous(); {x}.clone()
{x}.unfold({dim}, 1, 1); {x}.unfold(-1, 2, 1); {x}.as_strided((2, 2), (1, 1)); {x}.ravel(); {x}.view_as({s})
{x}.reshape_as({s}); T.atleast_1d({x}); T.atleast_2d({x}); T.atleast_3d({x}); {x2}.H; {x2}.adjoint()
{x3}.mH; {x}.as_strided((3,), (0,)); T.broadcast_tensors({x}, {y}); {x}.is_contiguous(); T.split({x}, 1)
T.split({x}, [{size0}]); {x}[..., None]; {x2}[:, ::2]; {x2}[::2, 1:]
{x1}.hsplit(1); {x2}.hsplit([1]); {x2}.vsplit(1); {x3}.vsplit([1]); {x3}.dsplit(1); {x3}.dsplit([1])
T.as_strided_copy({x}, (2, 2), (1, 1)); T.detach_copy({x}); T.diagonal_copy({x2}); T.expand_copy({x}, {wider})
T.permute_copy({x}, {order_of_dims}); T.select_copy({x}, {dim}, -1); T.squeeze_copy({x}); T.t_copy({x2})
T.transpose_copy({x}, {dim}, {dim}); T.unfold_copy({x}, {dim}, 1, 1); T.unsqueeze_copy({x}, {dim})
T.view_copy({x}, {shape}); T.narrow_copy({x}, {dim}, 0, 1); {x}.narrow_copy({dim}, 0, 1)
T.unbind_copy({x}, {dim})[0]; T.split_copy({x}, 1, {dim})[-1]; T.split_with_sizes_copy({x2}, [{x2}.shape[0]])[0]
"""

# ----- reductions, scans, orders -----

REDUCTIONS = """
{x}.sum(); {x}.sum({dim}); {x}.sum({dims}, keepdim={flag}); {x}.sum({dim}, dtype=T.float64); {f}.mean()
{f}.mean({dim}); {f}.mean({dims}, keepdim={flag}); {x}.prod(); {x}.prod({dim}, keepdim={flag})
{x}.amax({dims}); {x}.amin({dim}, keepdim={flag}); {x}.max(); {x}.min(); {x}.max({dim})
{x}.min({dim}, keepdim={flag}); {x}.max({y}); {x}.min({y}); {x}.argmax(); {x}.argmin({dim})
{x}.argmax({dim}, keepdim={flag}); {x}.aminmax(); {x}.aminmax(dim={dim}); {x}.all(); {x}.any({dim})
{x}.all({dim}); {x}.any(); {f}.var(); {f}.var({dim}); {f}.var({dims}, correction={count}, keepdim={flag})
{f}.std(); {f}.std({dim}, correction=0); T.var_mean({f}); T.var_mean({f}, {dim}); T.std_mean({f}, {dim})
{f}.logsumexp({dim}); {f}.logsumexp({dims}, keepdim={flag}); {f}.norm(); {f}.norm(1, {dim})
{f}.norm({order}, {dim}, keepdim={flag}); T.linalg.vector_norm({f}, {order}, {dim}); T.linalg.norm({f})
T.linalg.matrix_norm({f2}); T.linalg.matrix_norm({f3}, 1); {x}.count_nonzero(); {x}.count_nonzero({dim})
{f}.nansum(); {f}.nansum({dim}); {f}.nanmean(); {f}.nanmean({dim}); {x}.median(); {x}.median({dim})
{f}.nanmedian(); {f}.nanmedian({dim}); {x}.mode({dim}); {x}.kthvalue(1, {dim}); {x}.sort({dim})
{x}.sort({dim}, descending={flag}, stable=True); {x}.argsort(dim={dim}, stable=True); {x}.topk(1, {dim})
{x}.topk(2, -1, largest={flag}); {x}.msort(); {x}.cumsum({dim}); {x}.cumsum(0, dtype=T.float64)
{x}.cumprod({dim}); {x}.cummax({dim}); {x}.cummin({dim}); {f}.logcumsumexp({dim}); {f}.softmax({dim})
{f}.log_softmax({dim}); {x}.softmax(0, dtype=T.float64); {x}.trace(); {x2}.trace(); {x}.diff()
{x}.diff(dim={dim}); {x}.diff(dim=-1, prepend={=x}, append={=x}); {x}.equal({s}); {x}.allclose({s})
{x}.unique(); {x}.unique_consecutive(); {x}.unique(return_inverse=True, return_counts=True); {x}.nonzero()
{x}.argwhere(); F.softmin({f}, {dim}); F.normalize({f}, dim={dim}); F.softmax({f}, {dim})
F.log_softmax({f}, {dim}); T.cosine_similarity({f}, {s}, {dim}); F.cosine_similarity({f}, {s}, {dim})
T.pairwise_distance({f2}, {s}); F.pairwise_distance({f2}, {s}, keepdim={flag})
{f}.quantile(0.3); {f}.quantile(0.5, {dim}, keepdim={flag}); {f}.nanquantile(0.7); {f}.nanquantile(0.5, {dim})
{f}.histc(4); {f}.histogram(4); T.histogramdd({f2}, 2)[0]; T.cat(T.gradient(T.cat([{f2}, {f2}, {f2}]), dim=0))
 {f}.dist({s}); {f}.dist({s}, 1); {f2}.renorm(2, {dim}, 1.0); T.trapezoid({x})
T.trapezoid({f}, dim={dim}); T.trapz({f}, {s}); T.cumulative_trapezoid({x}); T.cumulative_trapezoid({f}, {s})
{f2}.cov(); {f2}.cov(correction=0); {f2}.corrcoef(); T.bincount({classes}.reshape(-1))
({classes}.reshape(-1)).bincount(); T.isin({x}, {y}); T.isin({x}, {number}, invert={flag})
"""

# ----- matrices -----

MATRICES = """
{f2}.mm({right}); T.spmm({f2}, {right}); T.dsmm({f2}, {right})
{x2}.matmul({right}); {f1}.matmul({right}); {f3}.matmul({right}); {f4}.matmul({right})
{f3}.bmm({batch}); {f2}.mv({row}); {x1}.dot({same1}); {f1}.vdot({same1}); {f1}.inner({same1})
{f2}.inner({f2}); {f1}.outer({f1}); {f1}.ger({f1}); T.addmm({bias_of_product})
T.addmm({bias_of_product}, beta={number}, alpha={factor}); T.addmv({bias_of_mv}); T.addr({bias_of_outer})
T.baddbmm({bias_of_bmm}); T.addbmm({bias_of_addbmm}); {f2}.kron({f2}); T.tensordot({f2}, {right}, 1)
T.frobenius_norm({f2}, {dim}); T.norm_except_dim({f2}); T.linalg.diagonal({f2}); T.vander({f1})
T.linalg.vander({f1}, N=3)
T.tensordot({f2}, {f2}, 0); T.einsum('ij,jk->ik', {f2}, {right}); T.einsum('ij->ji', {x2})
T.einsum('ij,ij->i', {f2}, {s}); T.einsum('bij,bjk->bik', {f3}, {batch}); T.einsum('ii->i', {fsquare})
T.chain_matmul({f2}, {right}); T.linalg.multi_dot([{f2}, {right}]); T.linalg.matmul({f2}, {right})
T.linalg.cross({of_three}, {s}); {of_three}.cross({s}, -1); F.linear({f2}, {weight})
F.linear({f2}, {weight}, {bias}); F.linear({f3}, {weight}, {bias}); F.bilinear({f2}, {s}, {bilinear})
T.bilinear({f2}, {s}, {bilinear})
{x2}.tril({offset}); {x2}.triu({offset}); {x3}.tril(); {f3}.triu({offset}); {x1}.diag(); {x2}.diag({offset})
{x1}.diag_embed(); {x}.diagflat(); T.block_diag({f2}, {f2}); {f2}.addmm_({addmm_factors})
{f1}.addmv_({addmv_factors}); {f2}.addr_({addr_factors}); {f3}.baddbmm_({baddbmm_factors})
{f2}.addbmm_({addbmm_factors}); {f1}.addmv({addmv_factors}); {f2}.addr({addr_factors})
{f3}.baddbmm({baddbmm_factors}); {f2}.addbmm({addbmm_factors}); {f2}.addmm({addmm_factors})
T.cdist({f2}, {=f2}); T.cdist({f3}, {=f3}, 1.0); T.pdist({f2}); F.pdist({f2}, 1.0)
F.scaled_dot_product_attention({f3}, {=f3}, {=f3})
F.scaled_dot_product_attention({f4}, {=f4}, {=f4}, is_causal=True)
"""

# ----- moving, choosing, putting -----

MOVES = """
T.cat([{x}, {s}], {dim}); T.cat([{x}, {s}, {s}]); T.concat([{x}, {s}]); T.concatenate([{x}, {s}], {dim})
T.stack([{x}, {s}]); T.stack([{x}, {s}], -1); T.hstack([{x}, {s}]); T.vstack([{x}, {s}])
T.dstack([{x}, {s}]); T.row_stack([{x}, {s}]); T.column_stack([{x}, {s}]); {x}.repeat({repeats})
{x}.tile(2); {x}.tile({repeats}); {x}.repeat_interleave(2); {x}.repeat_interleave(2, {dim}); {x}.flip({dim})
{x}.flip(0, -1); {x2}.fliplr(); {x}.flipud(); {x}.roll(1); {x}.roll(2, {dim}); {x2}.rot90()
{x2}.rot90({count}, (0, 1)); {x}[{first_places}]; {x}[{mask}]; {x}[{first_mask}]; {x2}[{first_places}, 0]
{x2}[:, [0, -1]]; {x}[[0]]; {x}.take({flat_places}); {x}.index_select({dim}, {places})
{x}.gather({dim}, {grid}); {x}.take_along_dim(dim={dim}, indices={grid}); {x}.masked_select({mask})
{x}.scatter({dim}, {grid}, {number}); {x}.scatter({dim}, {grid}, {s}); {x}.scatter_add({dim}, {grid}, {s})
{x}.scatter_reduce({dim}, {grid}, {s}, {joining}, include_self={flag})
{x}.index_add({dim}, {places}, {slices}); {x}.index_add({dim}, {places}, {slices}, alpha={factor})
{x}.index_reduce({dim}, {places}, {slices}, "prod", include_self={flag})
{x}.index_reduce({dim}, {places}, {slices}, "amax", include_self={flag})
{x}.index_copy({dim}, {own_places}, {slices}); {x}.index_fill({dim}, {places}, {number})
{x}.index_put(({first_places},), {value}, accumulate={flag}); {x}.put({own_flat_places}, {fills_flat})
{x}.masked_scatter({mask}, {s}); {x2}.diagonal_scatter({diagonal_values})
T.nextafter({f}, {s}); {f}.nextafter({s}); {f}.nextafter_({s}); T.frexp({f}).mantissa; {f}.frexp().exponent
{x2}.sum_to_size(1, {x2}.shape[1]); T.nonzero_static({x}, size=3); {x}.nonzero_static(size=2, fill_value=5)
T.as_strided_scatter({x}.contiguous(), T.ones(1), (1,), (1,))
{x}.contiguous().as_strided_scatter(T.ones(1), (1,), (1,))
{x2}.select_scatter({row_values}, 0, 0); {x2}.slice_scatter({s}, 0, 0, {size0})
T.meshgrid({x1}, {x1}, indexing='ij'); T.cartesian_prod({x1}, {x1}); T.combinations({x1})
T.searchsorted({sorted}, {s}); T.bucketize({f}, {boundaries}); F.one_hot({classes}, 4)
T.embedding({table}, {classes})
F.embedding({classes}, {table}); F.embedding({classes}, {table}, padding_idx=0); F.pad({x}, (1, 1))
T.constant_pad_nd({x}, (1, 1))
F.embedding_bag({classes}.reshape(1, -1), {table})
F.embedding_bag({classes}.reshape(1, -1), {table}, mode='sum')
F.pad({f}, (1, -1), value={number}); F.pad({f2}, (1, 1, 0, 1)); F.pad({f3}, (1, 1), mode='reflect')
F.pad({f3}, (1, 1), mode='replicate'); F.pad({f3}, (1, 1), mode='circular'); {x}.to(T.float64)
{x}.to(T.float32); {i}.to(T.float32); {x}.to({dtype}); {x}.type({dtype}); {x}.type_as({y}); {x}.bool()
{i}.byte(); {i}.char(); {x}.double(); {x}.float(); {i}.int(); {i}.long(); {i}.short(); {x}.cpu()
T.clone({x}); {x}.int(); {x}.long()
{x}.unsafe_split(1, {dim})[0]; {x}.unsafe_chunk(2, {dim})[-1]; {x2}.unsafe_split_with_sizes([{x2}.shape[0]])[0]
"""

# ----- making -----

MAKING = """
T.zeros({some_shape}); T.ones({some_shape}, dtype={dtype}); T.full({some_shape}, {number})
T.arange({count}); T.arange(0, 1, 0.3); T.linspace(-1, 1, {count}); T.logspace(0, 1, {count})
T.eye({count}); T.zeros_like({x}); T.ones_like({x}); T.full_like({f}, {number})
T.empty({some_shape}).fill_({number}); T.empty_like({x}).zero_(); T.empty_strided((2, 2), (1, 2)).fill_(1.0)
{x}.new_zeros({some_shape}); {x}.new_ones({some_shape}); {f}.new_full({some_shape}, {number})
{x}.new_empty({some_shape}).zero_(); {x}.new({count}).zero_(); {x}.new_tensor([1, 2])
{x}.new_empty_strided((2, 2), (1, 2)).zero_()
T.scalar_tensor({number}); T.as_tensor({x}); T.asarray({x}); T.tril_indices(3, 3)
T.triu_indices(3, 4, {offset}); T.from_numpy({x}.detach().numpy()); T.tensor({x}.tolist())
T.from_dlpack({x}.detach()); T.tensor([{number}])
T.range(0, {count}); T.unravel_index(T.tensor([0, 4]), (2, 3)); T.frombuffer(bytearray(8), dtype=T.float32)
"""

RANDOM = """
T.rand({some_shape}); T.randn({some_shape}, dtype=T.float64); T.randint(0, 9, {some_shape})
T.randperm({count}); T.rand_like({f}); T.randn_like({f}); T.randint_like({x}, 5); T.bernoulli({chances})
{chances}.bernoulli(); {chances}.multinomial(1); T.normal({f}, 1.0); T.normal(0.0, 1.0, {some_shape})
F.dropout({f}); F.dropout({f}, 0.3, {flag}); T.dropout({f}, 0.5, True); T.alpha_dropout({f}, 0.5, {flag})
T.feature_dropout({f4}, 0.5, {flag}); T.feature_alpha_dropout({f4}, 0.5, {flag})
F.dropout1d({f3}); F.dropout2d({f4})
F.dropout3d({f5}); F.alpha_dropout({f}, 0.5, True); F.feature_alpha_dropout({f4}, 0.5, True)
F.gumbel_softmax({f}); F.rrelu({f}, training=True); F.fractional_max_pool2d({image2}, 2, output_size=2)
F.fractional_max_pool2d_with_indices({image2}, 2, output_size=2)
F.fractional_max_pool3d({image3}, 2, output_size=1)
F.fractional_max_pool3d_with_indices({image3}, 2, output_size=1)
T.poisson({chances}); T.binomial(T.full((3,), 5.0), T.full((3,), 0.5))
"""

# ----- networks -----

NETWORKS = """
F.conv1d({image1}, {kernel1}); F.conv1d({image1}, {kernel1}, {out_bias}, padding=1)
F.conv_tbc({image1}.permute(2, 0, 1), {kernel1}.permute(2, 1, 0), {out_bias})
T.conv_tbc({image1}.permute(2, 0, 1), {kernel1}.permute(2, 1, 0), {out_bias}, 1)
F.conv2d({image2}, {kernel2}); F.conv3d({image3}, {kernel3})
F.conv2d({image2}, {kernel2}, {out_bias}, stride={stride}, padding=1)
F.conv2d({image2}, {kernel2}, dilation=2, padding=2); F.conv_transpose1d({image1}, {back1})
F.conv_transpose2d({image2}, {back2}, stride={stride}); F.conv_transpose3d({image3}, {back3})
F.conv2d({image2}, {depthwise}, groups=2); F.max_pool1d({image1}, 2); F.max_pool2d({image2}, 2)
F.max_pool2d({image2}, 3, 1, 1); F.max_pool3d({image3}, 2); F.max_pool1d_with_indices({image1}, 2)
F.max_pool2d_with_indices({image2}, 2); F.max_pool3d_with_indices({image3}, 2); F.avg_pool1d({image1}, 2)
F.avg_pool2d({image2}, 2, {stride}); F.avg_pool2d({image2}, 3, 2, 1, count_include_pad={flag})
F.avg_pool3d({image3}, 2); F.adaptive_avg_pool1d({image1}, 2); F.adaptive_avg_pool2d({image2}, 1)
F.adaptive_avg_pool2d({image2}, (2, 3)); F.adaptive_avg_pool3d({image3}, 1)
F.adaptive_max_pool1d({image1}, 2); F.adaptive_max_pool2d({image2}, 2); F.adaptive_max_pool3d({image3}, 1)
F.adaptive_max_pool1d_with_indices({image1}, 2); F.adaptive_max_pool2d_with_indices({image2}, 2)
F.adaptive_max_pool3d_with_indices({image3}, 1); F.lp_pool1d({image1}, 2, 2); F.lp_pool2d({image2}, 2, 2)
F.lp_pool3d({image3}, 2, 2); F.max_unpool1d(*F.max_pool1d_with_indices({image1}, 2), 2)
F.max_unpool2d(*F.max_pool2d_with_indices({even2}, 2), 2)
F.max_unpool3d(*F.max_pool3d_with_indices({image3}, 2), 2); F.interpolate({image2}, scale_factor=2)
F.interpolate({image2}, (3, 5), mode='bilinear', align_corners={flag})
F.interpolate({image1}, 3, mode='linear'); F.interpolate({image2}, (3, 3), mode='bicubic')
F.interpolate({image2}, 2, mode='area'); F.upsample({image2}, 3); F.upsample_nearest({image2}, 3)
F.upsample_bilinear({image2}, 3); F.grid_sample({image2}, {grid_points}, align_corners={flag})
T.grid_sampler({image2}, {grid_points}, 0, 1, {flag}); T.grid_sampler_2d({image2}, {grid_points}, 1, 0, {flag})
T.grid_sampler_3d({image3}, {image3}.new_zeros(len({image3}), 1, 2, 1, 3), 0, 2, {flag})
F.affine_grid({theta}, (2, 2, 2, 3), align_corners={flag}); F.unfold({image2}, 2)
F.fold({columns}, (3, 3), 2); T.pixel_shuffle({of_four_channels}, 2); T.pixel_unshuffle({even_image}, 2)
F.pixel_shuffle({of_four_channels}, 2); F.pixel_unshuffle({even_image}, 2); T.channel_shuffle({image2}, 2)
F.channel_shuffle({image2}, 2); F.batch_norm({image2}, None, None, training=True)
F.batch_norm({image2}, {channel}, {channel_scale})
F.batch_norm({image1}, {channel}, {channel_scale}, {channel}, {channel}, training={flag})
T.batch_norm({image2}, {channel}, {channel}, {channel}, {channel_scale}, True, 0.1, 1e-5, False)
F.layer_norm({f}, {last_shape}); F.layer_norm({f}, {last_shape}, {row}, {row})
T.layer_norm({f}, {last_shape}); F.group_norm({image2}, 2); T.group_norm({image2}, 1, {channel}, {channel})
F.instance_norm({image2}); T.instance_norm({image2}, None, None, None, None, True, 0.1, 1e-5, False)
F.rms_norm({f}, {last_shape}); T.rms_norm({f}, {last_shape}, {row}); F.local_response_norm({image2}, 2)
F.normalize({f2}); T.conv1d({image1}, {kernel1}); T.conv2d({image2}, {kernel2})
T.conv3d({image3}, {kernel3}); T.conv_transpose1d({image1}, {back1}); T.conv_transpose2d({image2}, {back2})
T.conv_transpose3d({image3}, {back3}); T.max_pool1d({image1}, 2); T.max_pool2d({image2}, 2)
T.max_pool3d({image3}, 2); T.avg_pool1d({image1}, 2); T.adaptive_avg_pool1d({image1}, 2)
T.adaptive_max_pool1d({image1}, 2)
"""

LOSSES = """
F.mse_loss({f}, {s}, reduction={reduction}); F.l1_loss({f}, {s}, reduction={reduction})
F.smooth_l1_loss({f}, {s}, reduction={reduction})
F.huber_loss({f}, {s}, reduction={reduction}, delta={positive}); F.kl_div({f}, {s}, reduction={reduction})
F.poisson_nll_loss({f}, {s}, reduction={reduction}); F.gaussian_nll_loss({f}, {s}, {like_chances})
F.soft_margin_loss({f}, {like_signs}, reduction={reduction}); F.hinge_embedding_loss({f}, {like_signs})
F.margin_ranking_loss({f}, {s}, {like_signs}); F.triplet_margin_loss({f2}, {s}, {s})
F.triplet_margin_with_distance_loss({f2}, {s}, {s}); F.cosine_embedding_loss({f2}, {s}, {row_signs})
F.multilabel_soft_margin_loss({f2}, {like_chances})
F.linear_cross_entropy({f2}, T.ones_like({f2}).mT @ {f2}, {row_classes}, reduction={reduction})
F.cross_entropy({f2}, {row_classes}, reduction={reduction})
F.cross_entropy({f2}, {row_classes}, {row_weights}, label_smoothing=0.1)
F.cross_entropy({f2}, {row_classes}, ignore_index=0); F.cross_entropy({f2}, {like_chances})
F.nll_loss({f2}, {row_classes}, reduction={reduction}); F.nll_loss({f2}, {row_classes}, {row_weights})
F.binary_cross_entropy({chances}, {like_chances}, reduction={reduction})
F.binary_cross_entropy_with_logits({f}, {like_chances}, reduction={reduction})
F.binary_cross_entropy_with_logits({f}, {like_chances}, pos_weight={row})
F.multi_margin_loss({f2}, {row_classes}); F.multilabel_margin_loss({f2}, T.zeros_like({=f2}, dtype=T.int64))
"""

LOOKS = """
{x}.tolist(); {x}.sum().item(); bool(({x} > {number}).any()); float({f}.sum()); len({x}); {x}.numel()
{x}.stride(); {x}.size(); {x}.shape; {x}.dim(); {x}.is_contiguous(); {x}.storage_offset(); {x}.requires_grad
{x}.is_leaf; repr({x}); {x}.element_size(); {f}.grad; {x}.dtype == {y}.dtype; [float(v) for v in {x1}]
{x}._version
{x}.sum().is_nonzero(); T.is_nonzero({x}.any())
"""


def texts(table: str) -> list[str]:
    """The calls of a table."""
    return [" ".join(call.split()) for call in re.split(r";|\n", table) if call.strip()]


METHOD = re.compile(r"^(\{[\w:]+\})\.(\w+)\(")


# As methods they take numbers spread out, as functions in one list.
OF_ONE_LIST = {"broadcast_to", "flip", "permute", "reshape", "tile"}
SPREAD_OUT = re.compile(r"(-?\d+|\{dim\})(, -?\d+)*\)")


def forms(call: str) -> list[str]:
    """A call of a method, as a function too; and the form that writes in place, which is a statement."""
    found = METHOD.match(call)
    if not found:
        return [call]
    subject, name = found.groups()
    rest = call[found.end() :]
    made = [call]
    if name in OF_ONE_LIST and SPREAD_OUT.fullmatch(rest):
        made.append(f"T.{name}({subject}, ({rest[:-1]},))")
    elif name in namespace[""]:
        made.append(f"T.{name}({subject}{'' if rest.startswith(')') else ', '}{rest}")
    return made


def writing_forms(call: str) -> list[str]:
    found = METHOD.match(call)
    if not found:
        return []
    subject, name = found.groups()
    rest = call[found.end() :]
    made = [f"{subject}.{name}_({rest}"] if f"{name}_" in methods else []
    if f"{name}_" in namespace[""]:
        made.append(f"T.{name}_({subject}{'' if rest.startswith(')') else ', '}{rest}")
    return made


def elementwise_calls() -> list[str]:
    """Those of the registry's ops that are public under their own name: operands, and nothing else."""
    found = []
    for prefix, names in (("T", namespace[""]), ("T.special", namespace["special"])):
        for name, f in names.items():
            if isinstance(f, Elementwise) and not f.attributes and not name.endswith("_"):
                found.append(f"{prefix}.{name}({operands(f)})")
    for name in methods:
        op = namespace[""].get(name)
        if isinstance(op, Elementwise) and not op.attributes and not name.startswith("_"):
            first, _, rest = operands(op).partition(", ")
            found.append(f"{first}.{name}({rest})")
    return found


def drawing_names() -> set[str]:
    """The functions that draw random numbers, but those which need not."""
    return {re.findall(r"[.}](\w+)\(", call)[0] for call in texts(RANDOM)} - {"rrelu"}


def operands(op: Elementwise) -> str:
    """Holes for the operands of an op, from its own domain."""
    masks = op.body.logical
    holes = []
    for k, p in enumerate(op.params):
        if p in masks and masks != set(op.params):
            holes.append("{mask}")
        else:
            holes.append(f"{{{'x' if not any('x' in h for h in holes) else 'y'}:{op.name}:{k}}}")
    return ", ".join(holes)


def table() -> dict[str, list[str]]:
    """All calls, by what a program does with them."""
    values = {
        "elementwise": [*elementwise_calls(), *texts(CHOOSING), *texts(OPERATORS)],
        "views": texts(VIEWS),
        "reductions": texts(REDUCTIONS),
        "matrices": texts(MATRICES),
        "moves": texts(MOVES),
        "making": texts(MAKING),
        "random": texts(RANDOM),
        "networks": [*texts(NETWORKS), *texts(RECURRENT)],
        "losses": texts(LOSSES),
    }
    written = [w for calls in values.values() for call in calls for w in writing_forms(call)]
    return {
        **{
            kind: list(dict.fromkeys(f for call in calls for f in forms(call)))
            for kind, calls in values.items()
        },
        "writes": list(dict.fromkeys([*texts(WRITES), *written])),
        "differentiating": texts(DIFFERENTIATING),
        "derived": texts(DERIVED),
        "looks": texts(LOOKS),
    }


# ----- which names that covers -----

NOT_CALLED = {
    "the state of random numbers": "Generator default_generator get_rng_state initial_seed manual_seed "
    "seed set_rng_state",
    "what shows how values would be computed": "kernels plan",
    "GPUs": "cuda is_pinned pin_memory record_stream",
    "Other processes": "is_shared share_memory_",
    "recurrent layers and factors of matrices, which have files of their own": "gru gru_cell lstm lstm_cell "
    "rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell cholesky solve_triangular",
    "sizes and weights that have to fit, which have files of their own": "ctc_loss "
    "multi_head_attention_forward _weight_norm",
    "dtypes that are not there": "bfloat16 half",
    "exchange, which has files of its own": "__dlpack__ __dlpack_device__ frombuffer to_dlpack",
    "memory whose elements are undefined": "resize_ resize_as_",
    "what gives a truth value, or an error": "imag is_conj is_neg",
    "what warns": "range",
}


def called() -> set[str]:
    """The names that some call has."""
    everything = " ".join(call for calls in table().values() for call in calls)
    return {
        match[0]
        for match in re.finditer(
            r"(?:T\.(?:linalg\.|special\.)?|F\.|\.)\w+(?=\()|\.\w+", everything
        )
    }


def public() -> set[str]:
    """The names that calls should have: those of the registry, and the functions of `nn.functional`."""
    left_out = {name for names in NOT_CALLED.values() for name in names.split()}
    prefixes = {"": "T.", "nn.functional": "F.", "linalg": "T.linalg.", "special": "T.special."}
    found = {
        prefixes[space] + name
        for space, names in namespace.items()
        for name in names
        if name not in left_out
    }
    found |= {f".{name}" for name in methods if name not in left_out and not name.startswith("__")}
    return found | {f"F.{name}" for name in adjit.nn.functional.__all__ if name not in left_out}
