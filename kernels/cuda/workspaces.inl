// The functions tandem_cuda_OPERATION_workspace: a part of each library that has the C interface.
size_t tandem_cuda_rms_norm_backward_workspace(int rows, int width) {
  return cuda::rms_norm_backward_workspace(rows, width);
}
size_t tandem_cuda_attention_backward_workspace(int rows, int heads) {
  return cuda::attention_backward_workspace(rows, heads);
}
size_t tandem_cuda_lm_head_workspace(int rows, int vocabulary) { return cuda::lm_head_workspace(rows, vocabulary); }
size_t tandem_cuda_lm_head_backward_workspace(int rows, int vocabulary) {
  return cuda::lm_head_backward_workspace(rows, vocabulary);
}
size_t tandem_cuda_sample_workspace(int rows, int vocabulary) { return cuda::sample_workspace(rows, vocabulary); }
size_t tandem_cuda_head_norm_backward_workspace(int rows, int heads, int head_size) {
  return cuda::head_norm_backward_workspace(rows, heads, head_size);
}
size_t tandem_cuda_sum_rows_workspace(int rows, int width) { return cuda::sum_rows_workspace(rows, width); }
size_t tandem_cuda_layer_norm_backward_workspace(int rows, int width) {
  return cuda::layer_norm_backward_workspace(rows, width);
}
size_t tandem_cuda_muon_workspace(int rows, int columns) { return cuda::muon_workspace(rows, columns); }
size_t tandem_cuda_digest_workspace(int64_t count) { return cuda::digest_workspace(count); }
size_t tandem_cuda_sum_of_squares_workspace(int64_t count) { return cuda::sum_of_squares_workspace(count); }
