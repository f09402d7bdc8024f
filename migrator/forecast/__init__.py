"""`tpu-migrate forecast`: what a program needs of a TPU, by the TPU's compiler and data sheets."""
