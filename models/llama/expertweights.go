package llama

// ExpertWeights is the weights of all experts of a layer, for decoders with a router of their
// own.
type ExpertWeights = experts

// NewExperts makes those that c.Experts describes.
func NewExperts(c *Config) *ExpertWeights { return newExperts(c) }

// Call has tokens [tokens, width] go through the experts chosen [tokens, each], and gives the
// sums by the weights [tokens, each].
func (e *experts) Call(f *frame, x, chosen, weights *tensor) *tensor {
	return e.call(f, x, chosen, weights)
}
