package llama

// ExpertWeights is the weights of all experts of a layer, for decoders with a router of their
// own.
type ExpertWeights = experts

// NewExperts makes the weights of the experts that c.Experts describes.
func NewExperts(c *Config) *ExpertWeights { return newExperts(c) }

// Call is the forward pass: every token of x [tokens, width] goes through the experts whose
// numbers are in chosen [tokens, experts per token], and the results are summed by weights of
// the same shape.
func (e *experts) Call(f *frame, x, chosen, weights *tensor) *tensor {
	return e.call(f, x, chosen, weights)
}
