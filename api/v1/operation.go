package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Operation is a long-running operation at Azure that a restarted driver can resume.
type Operation struct {
	// type of the operation, as in "CreateDisk" or "AttachDisk".
	// +kubebuilder:validation:MaxLength=64
	// +required
	Type string `json:"type"`
	// resumeToken lets any process of the driver go on polling the operation; opaque.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	ResumeToken string `json:"resumeToken,omitempty"`
	// startTime is when Azure accepted the operation, or, without a token, when Azure was about to
	// be asked.
	// +required
	StartTime metav1.Time `json:"startTime"`
}

// Error is a failure in the words of the driver.
type Error struct {
	// reason is one of the kinds of errors of the Provisioner Library, as in "InsufficientCapacity".
	// +kubebuilder:validation:MaxLength=64
	// +required
	Reason string `json:"reason"`
	// code is Azure's own error code, as in "QuotaExceeded"; empty if Azure gave none, or was not
	// asked.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Code string `json:"code,omitempty"`
	// message says what failed, with the platform's own words.
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Message string `json:"message"`
	// failureTime is when it failed.
	// +required
	FailureTime metav1.Time `json:"failureTime"`
}
