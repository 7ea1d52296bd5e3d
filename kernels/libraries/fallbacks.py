"""What torch.compile leaves to aten: nothing fuses across these calls. Torch-free: a list, with where it was read."""

from __future__ import annotations

TORCH = "2.13"
"""The release whose torch/_inductor/lowering.py the lists are from."""

ALWAYS: frozenset[str] = frozenset(
    """
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward _addmm_activation
    _amp_update_scale _amp_update_scale_ _cdist_backward _cdist_forward _cudnn_rnn _cudnn_rnn_backward
    _dyn_quant_matmul_4bit _dyn_quant_pack_4bit_weight _efficient_attention_backward _efficient_attention_forward
    _efficientzerotensor _embedding_bag _embedding_bag_backward _embedding_bag_forward_only
    _embedding_bag_per_sample_weights_backward _fft_r2c _flash_attention_backward _flash_attention_forward
    _fused_moving_avg_obs_fq_helper _fused_moving_avg_obs_fq_helper_functional _fused_rms_norm _grouped_mm
    _histogramdd_bin_edges _histogramdd_from_bin_cts _linalg_check_errors _linalg_det _linalg_eigh _linalg_slogdet
    _linalg_solve_ex _linalg_svd _pdist_backward _pdist_forward _scaled_dot_product_attention_math_for_mps
    _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
    _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
    _scaled_dot_product_fused_attention_overrideable _scaled_dot_product_fused_attention_overrideable_backward
    _segment_reduce_backward _sparse_coo_tensor_with_dims_and_tensors _thnn_fused_lstm_cell _to_sparse _trilinear
    _unique2 _weight_norm_interface_backward adaptive_max_pool2d_backward adaptive_max_pool3d
    adaptive_max_pool3d_backward addbmm angle bincount cholesky_inverse cholesky_solve convolution_backward cummax
    cummin cumprod cumsum digamma exponential fractional_max_pool2d_backward fractional_max_pool3d_backward gcd
    geqrf grid_sampler_2d_backward histc histogram igamma igammac index_reduce linalg_cholesky_ex
    linalg_householder_product linalg_inv_ex linalg_ldl_factor_ex linalg_ldl_solve linalg_lu linalg_lu_factor_ex
    linalg_lu_solve linalg_matrix_exp linalg_pinv linalg_qr linalg_solve_triangular logcumsumexp lu_unpack
    masked_scatter masked_scatter_backward max_pool3d_with_indices_backward miopen_rnn miopen_rnn_backward
    multinomial nanmedian nonzero ormqr polygamma rand rand_like randint randint_like randn randn_like randperm
    repeat_interleave replication_pad1d_backward replication_pad2d_backward resize_ resize_as_
    rrelu_with_noise_functional segment_reduce soft_margin_loss_backward special_airy_ai
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_gammainc special_gammaincc special_hermite_polynomial_h
    special_hermite_polynomial_he special_i0e special_i1e special_laguerre_polynomial_l
    special_legendre_polynomial_p special_log_ndtr special_modified_bessel_k0 special_modified_bessel_k1
    special_ndtr special_ndtri special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
    special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
    special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0
    special_zeta to_sparse triangular_solve uniform unique_consecutive unique_dim unique_dim_consecutive
    upsample_bicubic2d_backward upsample_linear1d_backward upsample_trilinear3d_backward view_as_complex
    """.split()
)
"""In Inductor's own set of fallbacks, by base name. cumsum and cumprod only where the scan is split."""

BY_SIZE: frozenset[str] = frozenset(
    """
    _adaptive_avg_pool2d _unsafe_masked_index _unsafe_masked_index_put_accumulate adaptive_max_pool2d avg_pool1d
    avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward bucketize index kthvalue
    max_pool2d_with_indices_backward median mode pow searchsorted sort topk
    """.split()
)
"""Lowered for some sizes, dtypes and arguments, left to aten for the others."""

UNLOWERED: frozenset[str] = frozenset(
    """
    _fft_c2c _fft_c2r masked_select _weight_int4pack_mm _fused_adam_ _fused_adamw_ _fused_sgd_
    """.split()
)
"""No lowering and no decomposition: Inductor makes a fallback of them when it meets them."""
