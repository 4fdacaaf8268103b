package volumeparams

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// template matches the templates of labels and annotations. They can change, so they are in tags
// only. The V1 driver's templates, which are of names, are in fill.
var template = regexp.MustCompile(`\$\{(pvc|namespace)\.(?:metadata\.)?(labels|annotations)\.([^}]+)\}`)

func hasTemplate(text string) bool { return template.MatchString(text) }

// findTemplates collects the tags whose values hold templates.
func (p *Parameters) findTemplates() {
	for name, value := range p.Tags {
		if !hasTemplate(value) {
			continue
		}
		if p.templates == nil {
			p.templates = map[string]string{}
		}
		p.templates[name] = value
	}
}

// dropTemplates removes tags from those with templates, because a VolumeAttributesClass sets them.
func (p *Parameters) dropTemplates(names []string) {
	named := func(name, _ string) bool { return provisioner.HasTag(names, name) }
	maps.DeleteFunc(p.templates, named)
}

// TagTemplates are the tags whose values hold templates of labels and annotations. FillTags
// replaces them.
func (p *Parameters) TagTemplates() map[string]string { return p.templates }

// FillTags replaces the templates in the tags by what the PersistentVolumeClaim and its namespace
// have. The error is an InvalidArgument for values that cannot be a tag's.
//
// A tag for which a label or an annotation is missing is left out: an empty value would pass for that
// of a label.
func (p *Parameters) FillTags(claim, namespace metav1.ObjectMeta) error {
	values, err := fillTemplates(p.templates, claim, namespace)
	maps.DeleteFunc(p.Tags, func(name, _ string) bool { _, has := p.templates[name]; return has })
	maps.Copy(p.Tags, values)
	return err
}

func fillTemplates(templates map[string]string, claim, namespace metav1.ObjectMeta) (map[string]string, error) {
	values, faults := map[string]string{}, []string(nil)
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		missing := false
		value := template.ReplaceAllStringFunc(templates[name], func(text string) string {
			part := template.FindStringSubmatch(text)
			object := claim
			if part[1] == "namespace" {
				object = namespace
			}
			from := object.Labels
			if part[2] == "annotations" {
				from = object.Annotations
			}
			value, found := from[part[3]]
			missing = missing || !found
			return value
		})
		switch {
		case missing:
		case !paramtable.IsTag(name, value):
			faults = append(faults, paramtable.Fault("tags", name+"="+value,
				fmt.Sprintf("up to %d characters in the value, which is from %s", paramtable.LongestTagValue, templates[name])))
		default:
			values[name] = value
		}
	}
	return values, paramtable.Invalid(faults)
}

// ReadsNamespace reports whether a template is of the namespace's labels or annotations.
func ReadsNamespace(templates map[string]string) bool {
	for _, value := range templates {
		for _, part := range template.FindAllStringSubmatch(value, -1) {
			if part[1] == "namespace" {
				return true
			}
		}
	}
	return false
}
