package hfconfig

import "github.com/vprof/vprof/models/llama"

// readFalcon reads Falcon's own keys: heads of key and value are one, or, in its newer
// models, as many as the file says.
func readFalcon(r *reader, c *llama.Config) {
	r.refuse("alibi", "false")
	r.refuse("bias", "false")
	c.Inner = r.sizeOr("ffn_hidden_size", 4*c.Width, 4*c.Width, mostInner)
	c.ResidualDropout = r.probability("hidden_dropout", 0)
	c.AttentionDropout = 0 // it is not applied
	if !r.flag("new_decoder_architecture", false) {
		r.refuse("multi_query", "true")
		r.refuse("parallel_attn", "true")
		c.KVHeads = 1
		return
	}
	c.KVHeads = r.sizeOr("num_kv_heads", c.Heads, c.Heads, mostWidth)
	r.must(c.Heads%c.KVHeads == 0, "num_kv_heads", "%d do not divide num_attention_heads %d", c.KVHeads, c.Heads)
	if r.sizeOr("num_ln_in_parallel_attn", 2, 2, 2) == 2 {
		c.Order = llama.FalconTwice
	}
}
