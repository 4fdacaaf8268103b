package aks

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Identity is what the webhook of workload identity tells containers.
type Identity struct {
	// ClientID reads the annotation of a service account.
	ClientID func(namespace, serviceAccount string) (string, error)
	TenantID string
	// AuthorityHost is the URL of the directory.
	AuthorityHost string
}

// Webhooks serves the webhooks of Objects. pools has the taints of each node pool.
func Webhooks(identity Identity, pools func(pool string) []corev1.Taint) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mutate-v1-pod", review(func(r *admissionv1.AdmissionRequest, pod *corev1.Pod, _ *corev1.Pod) error {
		account := pod.Spec.ServiceAccountName
		if account == "" {
			account = "default"
		}
		client, err := identity.ClientID(r.Namespace, account)
		if err == nil {
			identity.addToken(pod, client)
		}
		return err
	}))
	mux.Handle("/raise-requests", review(func(_ *admissionv1.AdmissionRequest, pod *corev1.Pod, _ *corev1.Pod) error {
		raiseRequests(pod)
		return nil
	}))
	mux.Handle("/validate-node", review(func(r *admissionv1.AdmissionRequest, node, old *corev1.Node) error {
		if allowed(r.UserInfo.Username) {
			return nil
		}
		pool := old.Labels["kubernetes.azure.com/agentpool"]
		for _, taint := range pools(pool) {
			if has(old.Spec.Taints, taint) && !has(node.Spec.Taints, taint) {
				return refusal(fmt.Sprintf("Taint delete request %q refused. User is attempting to delete a taint configured on "+
					"aks node pool %q.", taint.ToString(), pool))
			}
		}
		return nil
	}))
	return mux
}

// refusal is an error with the words of AKS.
type refusal string

func (r refusal) Error() string { return string(r) }

// allowed reports whether a user is AKS itself.
func allowed(user string) bool { return user == "kubernetes-super-admin" }

func has(taints []corev1.Taint, taint corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
}

// review answers for a webhook. change gets the object of the request and the old one, and may
// change the first. Its error refuses the request.
func review[T any](change func(r *admissionv1.AdmissionRequest, object, old *T) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Request == nil {
			http.Error(w, fmt.Sprintf("no admission review: %v", err), http.StatusBadRequest)
			return
		}
		answer := &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: true}
		if patch, err := changed(in.Request, change); err != nil {
			answer.Allowed, answer.Result = false, &metav1.Status{Message: err.Error(), Code: http.StatusForbidden}
		} else if patch != nil {
			answer.Patch, answer.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: answer})
	})
}

// changed returns the patch of the object's spec, nil for none.
func changed[T any](r *admissionv1.AdmissionRequest, change func(*admissionv1.AdmissionRequest, *T, *T) error) ([]byte, error) {
	var object, old T
	if err := json.Unmarshal(r.Object.Raw, &object); err != nil {
		return nil, err
	}
	if len(r.OldObject.Raw) > 0 {
		if err := json.Unmarshal(r.OldObject.Raw, &old); err != nil {
			return nil, err
		}
	}
	before, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	if err := change(r, &object, &old); err != nil {
		return nil, err
	}
	after, err := json.Marshal(object)
	if err != nil || string(before) == string(after) {
		return nil, err
	}
	var changed struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(after, &changed); err != nil {
		return nil, err
	}
	return json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": changed.Spec}})
}

// The annotation and the volume of workload identity.
const (
	skipContainers = "azure.workload.identity/skip-containers"
	tokenVolume    = "azure-identity-token"
	tokenDir       = "/var/run/secrets/azure/tokens"
	tokenFile      = "azure-identity-token"
	tokenAudience  = "api://AzureADTokenExchange"
	tokenSeconds   = 3600
)

// addToken gives Azure's token to each container that the annotation does not name.
func (i Identity) addToken(pod *corev1.Pod, clientID string) {
	var skipped []string
	for name := range strings.SplitSeq(pod.Annotations[skipContainers], ";") {
		skipped = append(skipped, strings.TrimSpace(name))
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for c := range containers {
			if !slices.Contains(skipped, containers[c].Name) {
				i.addEnvironment(&containers[c], clientID)
			}
		}
	}
	if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == tokenVolume }) {
		return
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name: tokenVolume,
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience: tokenAudience, ExpirationSeconds: ptr.To[int64](tokenSeconds), Path: tokenFile,
			}}},
		}},
	})
}

// addEnvironment adds variables and the mount, unless the container has them.
func (i Identity) addEnvironment(c *corev1.Container, clientID string) {
	for _, variable := range []corev1.EnvVar{
		{Name: "AZURE_CLIENT_ID", Value: clientID},
		{Name: "AZURE_TENANT_ID", Value: i.TenantID},
		{Name: "AZURE_FEDERATED_TOKEN_FILE", Value: tokenDir + "/" + tokenFile},
		{Name: "AZURE_AUTHORITY_HOST", Value: i.AuthorityHost},
	} {
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == variable.Name }) {
			c.Env = append(c.Env, variable)
		}
	}
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenDir }) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: tokenVolume, MountPath: tokenDir, ReadOnly: true})
	}
}

// requests are the defaults and the least values of a container's requests and limits.
var requests = map[corev1.ResourceName]struct{ initial, least resource.Quantity }{
	corev1.ResourceCPU:    {resource.MustParse("500m"), resource.MustParse("100m")},
	corev1.ResourceMemory: {resource.MustParse("2Gi"), resource.MustParse("100Mi")},
}

// raiseRequests is the mutator of Deployment Safeguards for requests.
func raiseRequests(pod *corev1.Pod) {
	for c := range pod.Spec.Containers {
		resources := &pod.Spec.Containers[c].Resources
		for name, limits := range requests {
			_, requested := resources.Requests[name]
			_, limited := resources.Limits[name]
			if !requested && !limited {
				set(&resources.Requests, name, limits.initial)
				set(&resources.Limits, name, limits.initial)
				continue
			}
			raise(resources.Requests, name, limits.least)
			raise(resources.Limits, name, limits.least)
			if limit, ok := resources.Limits[name]; ok && limit.Cmp(resources.Requests[name]) < 0 {
				resources.Requests[name] = limit
			}
		}
	}
}

func set(list *corev1.ResourceList, name corev1.ResourceName, value resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = value
}

func raise(list corev1.ResourceList, name corev1.ResourceName, least resource.Quantity) {
	if value, ok := list[name]; ok && value.Cmp(least) < 0 {
		list[name] = least
	}
}
