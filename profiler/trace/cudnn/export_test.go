package cudnn

// Rules are parsed decision rules other than the embedded ones.
type Rules = rules

// ParseRules makes parseRules known to the tests of package cudnn_test.
func ParseRules(text string) (*Rules, error) { return parseRules(text) }

// Explain is Explain with r for rules.
func (r *rules) Explain(c Config, d Direction, b Board) Plan { return r.explain(c, d, &b) }
