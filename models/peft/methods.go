package peft

import "github.com/vprof/vprof/profiler/trace"

// methods holds the adapter methods by name. Their forward passes follow tuners/<method>/layer.py of peft 0.21.
var methods = map[string]*method{
	"adalora": {
		options: "init_r=12 lora_dropout=0 importance=false",
		add:     (*AdaptedLayer).addAdaLoRA, forward: (*AdaptedLayer).adalora, penalty: addOrthogonalPenalty,
	},
	"adaption_prompt": {
		options:      "adapter_len=none adapter_layers=none",
		atEmbeddings: true, add: (*AdaptedLayer).addPrompts, forward: (*AdaptedLayer).lookup,
	},
	"adamss": {
		options: "r=100 num_subspaces=5 subspace_rank=1", add: (*AdaptedLayer).addAdaMSS,
		forward: (*AdaptedLayer).adamss,
	},
	"bdlora": {
		options: "r=8 nblocks=1 target_modules_bd_a=none target_modules_bd_b=none lora_dropout=0",
		add:     (*AdaptedLayer).addBDLoRA, forward: (*AdaptedLayer).bdlora,
	},
	"boft": {
		options: "boft_block_size=4 boft_n_butterfly_factor=1 boft_P=gpu|cpu",
		add:     (*AdaptedLayer).addBOFT, forward: (*AdaptedLayer).boft,
	},
	"delora": { // its buffer is delora_w_norm
		options: "r=8 module_dropout=0 rank_pattern=none",
		has:     "delora_A[r,in] delora_B[out,r] delora_lambda[1] f32[in]", counts: "r",
		forward: (*AdaptedLayer).delora,
	},
	"fourierft": {options: "n_frequency=1000", add: (*AdaptedLayer).addSpectrum, forward: (*AdaptedLayer).fourierFT},
	"frod": {
		options: "sparse_rate=0.01 frod_V=cpu|gpu runtime_offload_base_weight=false frod_dropout=0",
		add:     (*AdaptedLayer).addFRoD, share: shareFRoD, forward: (*AdaptedLayer).frod,
	},
	"glora": {
		options: "r=8 config_A_B=lora|vector|constant|none config_C=lora|vector|none config_D_E=constant|vector|none",
		add:     (*AdaptedLayer).addGLoRA, forward: (*AdaptedLayer).glora,
	},
	"ia3": {options: "feedforward_modules=none", add: (*AdaptedLayer).addIA3, forward: (*AdaptedLayer).ia3},
	"lily": {
		options: "r=32 stride_A=1 num_B=2", has: "lily_A[r,in] lily_B[num_B*r,out] lily_router[num_B,r]",
		counts: "r num_B stride_A", share: shareLily, forward: (*AdaptedLayer).lily,
	},
	"loha": {
		options: "r=8 rank_pattern=none",
		has:     "hada_w1_a[out,r] hada_w1_b[r,in] hada_w2_a[out,r] hada_w2_b[r,in]",
		counts:  "r", forward: (*AdaptedLayer).loha,
	},
	"lokr": {
		options: "r=8 decompose_both=false decompose_factor=-1 rank_pattern=none",
		add:     (*AdaptedLayer).addLoKr, forward: (*AdaptedLayer).lokr,
	},
	"miss": {
		options: "r=64 mini_r=1 miss_dropout=0 init_weights=true|bat|mini",
		add:     (*AdaptedLayer).addMiSS, forward: (*AdaptedLayer).miss,
	},
	"oft": {
		options: "r=0 oft_block_size=32 use_cayley_neumann=true num_cayley_neumann_terms=5",
		add:     (*AdaptedLayer).addOFT, forward: (*AdaptedLayer).oft,
	},
	"osf": {
		options: "effective_rank=none rank_pattern=none", add: (*AdaptedLayer).addOSF, forward: (*AdaptedLayer).osf,
	},
	"peanut": {
		options: "r=32 depth=0 act_fn=relu|gelu|silu|tanh|identity", add: (*AdaptedLayer).addPEANuT,
		forward: (*AdaptedLayer).peanut,
	},
	"p_tuning": {
		options: "num_virtual_tokens=20 encoder_hidden_size=0 encoder_reparameterization_type=MLP|LSTM " +
			"encoder_num_layers=2 encoder_dropout=0",
		atEmbeddings: true, add: (*AdaptedLayer).addPTuning, forward: (*AdaptedLayer).forwardWithPrompt,
	},
	"prompt_tuning": {
		options: "num_virtual_tokens=20", atEmbeddings: true, has: "embedding[num_virtual_tokens,out]",
		counts: "num_virtual_tokens", forward: (*AdaptedLayer).forwardWithPrompt,
	},
	"pvera": { // whose first matrix has rows for means and for variances
		options: "r=256 pvera_dropout=0", has: "pvera_lambda_b[out] pvera_lambda_d[2*r]", counts: "r",
		share: shareVeRA(2), forward: (*AdaptedLayer).pvera,
	},
	"randlora": {
		options: "r=32 randlora_dropout=0", add: (*AdaptedLayer).addRandLoRA, share: shareRandLoRA,
		forward: (*AdaptedLayer).randlora,
	},
	"shira": {options: "r=32", add: (*AdaptedLayer).addSHiRA, forward: (*AdaptedLayer).shira},
	"tinylora": {
		options: "r=2 u=64 weight_tying=0 tinylora_dropout=0",
		add:     (*AdaptedLayer).addTinyLoRA, share: shareTinyLoRA, forward: (*AdaptedLayer).tinylora,
	},
	"trainable_tokens": {
		options: "token_indices=none", atEmbeddings: true,
		add: (*AdaptedLayer).addTrainableTokens, forward: (*AdaptedLayer).trainableTokens,
	},
	"vblora": {
		options: "r=4 num_vectors=256 vector_length=256 topk=2 vblora_dropout=0",
		has:     "vblora_logits_A[r,in/vector_length,num_vectors] vblora_logits_B[out/vector_length,r,num_vectors]",
		counts:  "r topk",
		share:   shareParameter("vblora_vector_bank", "num_vectors", "vector_length"), forward: (*AdaptedLayer).vblora,
	},
	"vera": {
		options: "r=256 vera_dropout=0", has: "vera_lambda_b[out] vera_lambda_d[r]", counts: "r", share: shareVeRA(1),
		forward: (*AdaptedLayer).vera,
	},
	"waveft": {
		options: "n_frequency=2592 use_idwt=true", add: (*AdaptedLayer).addSpectrum, forward: (*AdaptedLayer).waveft,
	},
}

// none is the value of an option that the user has not set.
const none = "none"

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)
