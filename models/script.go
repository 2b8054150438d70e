package models

// A Script is the calculation that a model's own project ships to choose its batch
// sizes. vprof keeps it to show what it says beside what is true.
type Script interface {
	// EffectiveBatch is the number of samples of an optimizer step that the script
	// aims at unless it is told otherwise.
	EffectiveBatch() int
	// Parts are the parts of training that the script tells apart, in their order.
	Parts() []ScriptPart
	// Recommend is what the script says for a part on a board with this many bytes of
	// memory, if an optimizer step is to see an effective batch of samples.
	Recommend(p ScriptPart, memory int64, effective int) ScriptAdvice
}

// A ScriptPart is a part of a project's training, such as a stage of its curriculum.
type ScriptPart struct {
	Name string
	// Model is the registry's name of the same step.
	Model string
	// Settings are the values of the settings in which the parts differ.
	Settings Settings
}

// ScriptAdvice is the batch size that a script recommends, and how it gets there.
type ScriptAdvice struct {
	Batch, Accumulate int
	// Components are the amounts that the script adds up, in bytes, in its order.
	Components []ScriptComponent
	// Utilization is the share of the board's memory that they sum to.
	Utilization float64
}

// A ScriptComponent is one of the numbers that a script adds up.
type ScriptComponent struct {
	Name  string
	Bytes int64
}
