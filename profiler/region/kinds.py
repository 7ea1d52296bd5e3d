"""Kinds of aten operations: what a cost model, a fusion rule and an advisor need to know of a name. Torch-free."""

from __future__ import annotations

GEMM, ATTENTION, CONVOLUTION = "gemm", "attention", "convolution"
POINTWISE, REDUCTION, NORMALISATION, SOFTMAX = "pointwise", "reduction", "normalisation", "softmax"
VIEW, COPY, GATHER, SCATTER, SORT, SCAN = "view", "copy", "gather", "scatter", "sort", "scan"
RANDOM, CONSTANT, FFT, COMMUNICATION, OTHER = "random", "constant", "fft", "communication", "other"

_TABLE: dict[str, str] = {
    GEMM: """mm bmm addmm baddbmm addbmm addmv mv dot linear matmul einsum _scaled_mm _int_mm _grouped_mm
        _scaled_grouped_mm _addmm_activation _weight_int4pack_mm _weight_int8pack_mm linear_backward
        grouped_mm scaled_mm matmul_backward _sparse_semi_structured_linear""",
    ATTENTION: """scaled_dot_product_attention _scaled_dot_product_flash_attention _flash_attention_forward
        _scaled_dot_product_efficient_attention _efficient_attention_forward _scaled_dot_product_cudnn_attention
        _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math attention attention_backward
        _scaled_dot_product_flash_attention_backward _flash_attention_backward _efficient_attention_backward
        _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward
        _scaled_dot_product_flash_attention_for_cpu_backward _cudnn_attention_forward
        _scaled_dot_product_fused_attention_overrideable""",
    CONVOLUTION: """convolution convolution_backward cudnn_convolution _convolution conv1d conv2d conv3d
        miopen_convolution conv_transpose1d conv_transpose2d conv_transpose3d cudnn_convolution_add_relu""",
    NORMALISATION: """native_layer_norm layer_norm native_layer_norm_backward native_group_norm group_norm
        native_group_norm_backward rms_norm _fused_rms_norm _fused_rms_norm_backward batch_norm native_batch_norm
        _native_batch_norm_legit native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward
        _batch_norm_impl_index batch_norm_backward miopen_batch_norm miopen_batch_norm_backward instance_norm
        _batch_norm_with_update _batch_norm_no_update normalize _native_batch_norm_legit_functional""",
    SOFTMAX: """softmax _softmax _log_softmax log_softmax _safe_softmax _softmax_backward_data
        _log_softmax_backward_data""",
    REDUCTION: """sum mean prod var std var_mean std_mean amax amin max min argmax argmin all any norm logsumexp
        linalg_vector_norm count_nonzero nll_loss_forward nll_loss_backward cross_entropy_loss nll_loss nll_loss_nd
        mse_loss l1_loss smooth_l1_loss kl_div binary_cross_entropy binary_cross_entropy_with_logits aminmax
        max_pool2d max_pool2d_with_indices avg_pool2d adaptive_avg_pool2d _adaptive_avg_pool2d max_pool3d avg_pool3d
        max_pool2d_with_indices_backward avg_pool2d_backward _adaptive_avg_pool2d_backward avg_pool1d
        adaptive_avg_pool1d mean_backward sum_to_size nansum std_mean""",
    VIEW: """view _unsafe_view reshape_alias _reshape_alias t transpose permute expand squeeze unsqueeze select slice
        narrow split split_with_sizes chunk unbind detach alias unfold as_strided diagonal view_as expand_as flatten
        unflatten movedim swapaxes numpy_T mT T adjoint getitem tensor_split lift_fresh _conj real_view result_type
        is_pinned size numel dim broadcast_to unsafe_split unsafe_chunk view_as_real view_as_complex set_data
        requires_grad_ detach_ tensor_split item_view resolve_conj resolve_neg matrix_H""",
    COPY: """copy_ clone contiguous cat concat stack copy reshape repeat tile constant_pad_nd pad flip roll fill fill_
        zero_ _reshape_copy unsafe_concat hstack vstack slice_backward select_backward repeat_interleave
        new_empty_strided im2col col2im""",
    GATHER: """index index_select gather embedding take take_along_dim _unsafe_index _embedding_bag embedding_bag
        masked_select nonzero take_along_axis one_hot""",
    SCATTER: """scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_add index_add_ index_put
        index_put_ _index_put_impl_ embedding_dense_backward index_copy index_copy_ index_fill index_fill_
        masked_scatter masked_scatter_ segment_reduce _unsafe_index_put embedding_backward histc bincount
        index_select_backward""",
    SORT: "sort argsort topk kthvalue median mode unique _unique2 unique_consecutive searchsorted bucketize msort",
    SCAN: "cumsum cumprod cummax cummin logcumsumexp _cummax_helper _cummin_helper cumsum_",
    RANDOM: """native_dropout rand randn rand_like randn_like bernoulli bernoulli_ multinomial normal_ uniform_ randint
        randint_like randperm dropout native_dropout_backward _fused_dropout exponential_ dropout_ feature_dropout""",
    CONSTANT: """zeros ones full empty arange linspace eye new_zeros new_ones new_full new_empty empty_like zeros_like
        ones_like full_like scalar_tensor empty_strided zeros_ tensor lift_fresh_copy empty_permuted""",
    FFT: "fft_fft fft_ifft fft_rfft fft_irfft _fft_r2c _fft_c2r _fft_c2c fft_fft2 fft_ifft2 fft_fftn fft_ifftn",
}  # fmt: skip

_KIND: dict[str, str] = {name: kind for kind, names in _TABLE.items() for name in names.split()}

_OTHER = frozenset(
    """_local_scalar_dense item is_nonzero equal linalg_inv linalg_solve linalg_qr linalg_svd linalg_eigh cholesky
    _cudnn_rnn _thnn_fused_lstm_cell lstm gru _cdist_forward cdist grid_sampler_2d _to_cpu _fused_adam_ _fused_adamw_
    _fused_sgd_ record_stream _assert_async nonzero_static resize_ to_sparse""".split()
)
_COMMUNICATION = ("nccl", "c10d", "_c10d_functional", "record_param_comms", "all_reduce", "allreduce", "all_gather",
                  "reduce_scatter", "all_to_all", "broadcast_coalesced")  # fmt: skip


def base_name(target: str) -> str:
    """`aten.mul.Tensor`, `aten::mul`, `tritonworthy.rms_norm.default` -> `mul`, `mul`, `rms_norm`."""
    name = target.split("::")[-1] if "::" in target else target
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[0] in ("aten", "tritonworthy", "prims") else parts[0]


def kind_of(target: str) -> str:
    """The kind of an operation by its name; an aten operation that no table names is pointwise."""
    lowered = target.lower()
    if any(c in lowered for c in _COMMUNICATION):
        return COMMUNICATION
    name = base_name(target)
    if name in _KIND:
        return _KIND[name]
    if name in _OTHER or name.startswith("_foreach") or not target.startswith(("aten", "prims")):
        return OTHER
    return POINTWISE
