package hfconfig

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/bert"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/trace"
)

// newEncoder returns what all text encoders share: their batch sizes and settings. positions is the longest sequence.
func newEncoder(name string, layers, width, positions, classes int64) architecture {
	return architecture{
		summary: fmt.Sprintf("%s encoder, %d layers of width %d", name, layers, width),
		unit:    "sequence", batch: 32, batches: []int{4, 8, 16, 32, 64, 128},
		settings: []models.Setting{
			lengthSetting(128, positions, "max_position_embeddings"), hf.PaddingSetting(1),
			hf.ClassesSetting(classes), hf.HeadDropoutSetting(),
		},
		only:  classificationSettings,
		notes: []string{hf.PaddingNote},
	}
}

// classificationSettings lists the tasks of encoders to which a setting applies, by the setting's name.
var classificationSettings = map[string][]string{
	"classes": {classification, tokens}, "head-dropout": {tokens}, hf.HeadSetting: {maskedLM},
}

func classesOf(c models.Case, problem func(classes int64) hf.ProblemType) hf.Classes {
	n := hf.ClassesOf(c)
	return hf.Classes{Count: n, Problem: problem(n)}
}

// problemType reads problem_type. Without the key, the problem type depends on the number of classes.
func (r *reader) problemType(labels int64) func(classes int64) hf.ProblemType {
	const single, multi, regression = "single_label_classification", "multi_label_classification", "regression"
	value, name, ok := r.get("problem_type")
	if !ok || null(value) {
		return hf.DefaultProblemType
	}
	known := map[string]hf.ProblemType{single: hf.SingleLabel, multi: hf.MultiLabel, regression: hf.Regression}
	given := r.choice("problem_type", single, []string{single, multi, regression})
	r.must(given != single || labels > 1, name, "%s needs several classes; set num_labels to 2 or more", single)
	return func(int64) hf.ProblemType { return known[given] }
}

// checkHeads checks that the number of attention heads divides the width.
func (r *reader) checkHeads(key string, heads int64, widthKey string, width int64) {
	r.must(width%heads == 0, key, "%d heads: need a number that divides %s, %d", heads, widthKey, width)
}

// checkEven checks that the width of rotary embeddings is even.
func (r *reader) checkEven(key string, width int64) {
	r.must(width%2 == 0, key, "%d is odd: need an even size for rotary positions", width)
}

// bertConfig reads the keys that the configurations of BERT and RoBERTa share.
func (r *reader) bertConfig(vocab int64, roberta bool) bert.Config {
	r.refuse("is_decoder", "false")
	r.refuse("add_cross_attention", "false")
	c := bert.Config{Roberta: roberta}
	r.setFields(&c, fmt.Sprintf("Vocab=vocab_size:%d ", vocab)+usualSizes+"Inner=intermediate_size:3072 "+
		"Positions=max_position_embeddings:512 Types=type_vocab_size:2 Activation=hidden_act:gelu "+
		"HiddenDropout=hidden_dropout_prob:0.1 AttentionDropout=attention_probs_dropout_prob:0.1 "+
		"!Untied=tie_word_embeddings:true")
	r.checkHeads("num_attention_heads", c.Heads, "hidden_size", c.Width)
	return c
}

// bertTask returns a function that creates a task of BERT or RoBERTa. by is the model's [trace.FusedAttentionModels].
func (r *reader) bertTask(c bert.Config, labels int64, by trace.FusedAttentionModels) func(models.Case) train.Task {
	dropout := r.probability("classifier_dropout", c.HiddenDropout)
	problem := r.problemType(labels)
	return func(k models.Case) train.Task {
		c.Eager = hf.IsEager(k, by)
		switch k.Task {
		case tokens:
			return bert.TokenClassification(c, classesOf(k, problem), hf.HeadDropout(k, dropout), hf.TextOf(k))
		case classification:
			return bert.Classification(c, classesOf(k, problem), dropout, hf.TextOf(k))
		}
		return bert.MaskedLM(c, hf.TextOf(k))
	}
}

func readBERT(r *reader) architecture {
	c, labels := r.bertConfig(30522, false), r.labelCount()
	r.padToken(0, c.Vocab)
	a := newEncoder("BERT", c.Layers, c.Width, c.Positions, labels)
	a.settings = append(a.settings, hf.HeadlessSetting())
	a.addEagerSetting()
	a.task = r.bertTask(c, labels, trace.FusedByBERT)
	return a
}

func readRoBERTa(r *reader) architecture { return r.roberta(50265) }

// readXLMRoBERTa reads XLM-RoBERTa and CamemBERT, whose modules are RoBERTa's under other names.
func readXLMRoBERTa(r *reader) architecture { return r.roberta(30522) }

// roberta reads RoBERTa's configuration; vocab is the default vocabulary size.
func (r *reader) roberta(vocab int64) architecture {
	c, labels := r.bertConfig(vocab, true), r.labelCount()
	pad, some := r.padToken(1, c.Vocab)
	r.must(some && pad >= 0, "pad_token_id", "missing: RoBERTa counts positions from it; set it, like 1")
	most := c.Positions - pad - 1
	r.must(most > 0, "max_position_embeddings",
		"%d is too small: positions are counted from pad_token_id, %d, so need at least 2 more", c.Positions, pad)
	a := newEncoder("RoBERTa", c.Layers, c.Width, max(1, most), labels)
	a.settings = append(a.settings, hf.HeadlessSetting())
	a.addEagerSetting()
	a.task = r.bertTask(c, labels, trace.FusedByRoBERTa)
	return a
}

func readDistilBERT(r *reader) architecture {
	var c bert.DistilledConfig
	r.setFields(&c, "Vocab=vocab_size:30522 Width=dim:768 Layers=n_layers:6 Heads=n_heads:12 Inner=hidden_dim:3072 "+
		"Positions=max_position_embeddings:512 Activation=activation:gelu Dropout=dropout:0.1 "+
		"AttentionDropout=attention_dropout:0.1 !Untied=tie_word_embeddings:true")
	r.checkHeads("n_heads", c.Heads, "dim", c.Width)
	r.padToken(0, c.Vocab)
	labels := r.labelCount()
	dropout, problem := r.probability("seq_classif_dropout", 0.2), r.problemType(labels)
	a := newEncoder("DistilBERT", c.Layers, c.Width, c.Positions, labels)
	a.addEagerSetting()
	a.task = func(k models.Case) train.Task {
		c.Eager = hf.IsEager(k, trace.FusedByOPT)
		switch k.Task {
		case tokens:
			return bert.DistilledTokenClassification(c, classesOf(k, problem),
				hf.HeadDropout(k, c.Dropout), hf.TextOf(k))
		case classification:
			return bert.DistilledClassification(c, classesOf(k, problem), dropout, hf.TextOf(k))
		}
		return bert.DistilledMaskedLM(c, hf.TextOf(k))
	}
	return a
}
